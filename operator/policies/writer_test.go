package policies

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestManyEventsCauseOneReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		events := all[*v1alpha1.SidecarSet]()
		for i := range 1000 {
			set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("set-%d", i)}}
			events.Create(t.Context(), event.TypedCreateEvent[*v1alpha1.SidecarSet]{Object: set}, q)
			events.Update(t.Context(), event.TypedUpdateEvent[*v1alpha1.SidecarSet]{ObjectOld: set, ObjectNew: set}, q)
			events.Delete(t.Context(), event.TypedDeleteEvent[*v1alpha1.SidecarSet]{Object: set}, q)
		}
		synctest.Wait()
		assert.Zero(t, q.Len(), "the reconcile waits for more events")
		time.Sleep(interval + time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 1, q.Len())
	})
}
