package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waits records the delay of each request.
type waits struct {
	queue
	all []time.Duration
}

func newWaits() *waits {
	return &waits{queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
}

func (w *waits) Add(reconcile.Request) { w.all = append(w.all, 0) }

func (w *waits) AddAfter(_ reconcile.Request, after time.Duration) { w.all = append(w.all, after) }

func TestTheFirstEventIsEnqueuedAtOnce(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	l, q := newEnqueueLimiter(clock), newWaits()
	defer q.ShutDown()
	l.enqueue(q, "mesh")
	l.recordReconcile("mesh", clock.Now())
	clock.SetTime(clock.Now().Add(300 * time.Millisecond))
	l.enqueue(q, "mesh")
	l.enqueue(q, "other")
	clock.SetTime(clock.Now().Add(700 * time.Millisecond))
	l.enqueue(q, "mesh")
	assert.Equal(t, []time.Duration{0, 700 * time.Millisecond, 0, 0}, q.all)
}
