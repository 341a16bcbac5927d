package activities

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
)

// queuedPods contains the pods that a batch upgrades next, as slots are released. After a rejected write, the
// batch upgrades the first queued pod in the same slot. Otherwise, the batch would need a new plan after each
// rejected write.
type queuedPods struct {
	mu      sync.Mutex
	pods    []protocol.SelectedPod
	started []protocol.SelectedPod
	ended   bool
}

func (s *queuedPods) next() (next protocol.SelectedPod, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.pods) == 0 {
		return next, false
	}
	next, s.pods = s.pods[0], s.pods[1:]
	s.started = append(s.started, next)
	return next, true
}

// end closes the queue, and returns the pods that next has returned. After the call of end, next returns no pod.
func (s *queuedPods) end() []protocol.SelectedPod {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.started
}

// endQueued closes the queue, records the started pods of the queue as tried, and removes the tried pods from
// left.
func (b *upgradeBatch) endQueued() {
	for _, one := range b.queued.end() {
		b.try(one)
	}
	b.left = slices.DeleteFunc(b.left, func(pod protocol.SelectedPod) bool {
		_, tried := b.isTried[pod.PodReference]
		return tried
	})
	b.queued = &queuedPods{}
}

// upgradeInSlot upgrades a pod. If the write is rejected, upgradeInSlot upgrades the next queued pod in the
// same slot.
func (b *upgradeBatch) upgradeInSlot(ctx context.Context, one protocol.SelectedPod, queued *queuedPods) error {
	for {
		decide := func(ctx context.Context, pod *corev1.Pod) (decision, error) { return b.decide(ctx, one, pod) }
		result, err := b.apply(ctx, one.PodReference, &b.outcome, change{wanted: b.wanted, decide: decide, write: b.patchPod})
		if err != nil {
			return err
		}
		b.outcome.release(one.PodReference)
		if result != resultRejected {
			return nil
		}
		if one.Unready || b.outcome.isWritten(one.PodReference) {
			return nil // an unready pod occupies no slot, and a resized pod keeps its slot
		}
		next, ok := queued.next()
		if !ok {
			// No watch event reports the released slot, so upgradeInSlot wakes the batch.
			b.Changes.wake(b.input.SidecarSet.Name)
			return nil
		}
		one = next
	}
}
