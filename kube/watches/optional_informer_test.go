package watches

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestAnOptionalInformerRetriesRarelyOnlyWithoutThePermission(t *testing.T) {
	lists := func(failure error) (attempts int) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			failing := &toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					attempts++
					return nil, failure
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, failure },
			}
			NewOptionalInformer(failing, &corev1.Pod{}, 0, nil).RunWithContext(ctx)
		})
		return attempts
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "rolloutactions"}, "", nil)
	assert.LessOrEqual(t, lists(forbidden), 8)
	assert.GreaterOrEqual(t, lists(apierrors.NewInternalError(context.DeadlineExceeded)), 40)
}
