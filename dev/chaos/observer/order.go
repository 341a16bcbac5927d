package observer

import (
	"container/heap"
	"time"
)

// settleTime is how long an event waits for earlier events of other kinds.
const settleTime = 1500 * time.Millisecond

// order sorts the events of several feeds by resourceVersion.
type order []event

func (o order) Len() int           { return len(o) }
func (o order) Less(i, j int) bool { return o[i].version < o[j].version }
func (o order) Swap(i, j int)      { o[i], o[j] = o[j], o[i] }

// Push and Pop are for package heap.
func (o *order) Push(x any) {
	if e, ok := x.(event); ok {
		*o = append(*o, e)
	}
}

// Pop is Push's counterpart.
func (o *order) Pop() any {
	last := len(*o) - 1
	e := (*o)[last]
	*o = (*o)[:last]
	return e
}

// add queues an event.
func (o *order) add(e event) { heap.Push(o, e) }

// settled removes the events before which no other event can arrive: up to the horizon all
// changes of SidecarSets are known.
func (o *order) settled(now time.Time, horizon uint64) []event {
	var ready []event
	for len(*o) > 0 && (*o)[0].version <= horizon && now.Sub((*o)[0].seen) >= settleTime {
		if e, ok := heap.Pop(o).(event); ok {
			ready = append(ready, e)
		}
	}
	return ready
}
