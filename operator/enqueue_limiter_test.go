package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// waits records how long each request is to wait.
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
	now := time.Unix(1000, 0)
	l, q := newEnqueueLimiter(func() time.Time { return now }), newWaits()
	defer q.ShutDown()
	l.enqueue(q, "mesh")
	l.recordReconcile("mesh", now)
	now = now.Add(300 * time.Millisecond)
	l.enqueue(q, "mesh")
	l.enqueue(q, "other")
	now = now.Add(700 * time.Millisecond)
	l.enqueue(q, "mesh")
	assert.Equal(t, []time.Duration{0, 700 * time.Millisecond, 0, 0}, q.all)
}
