package registration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestOnlyRequestsThatBringNewsOfSetsCount(t *testing.T) {
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	refused := errors.New("storage is (re)initializing")
	for name, c := range map[string]struct {
		request  func(toolscache.ListerWatcherWithContext) error
		answer   error
		brings   watch.EventType
		mentions time.Time
	}{
		"a list":                    {list, nil, "", noon},
		"a list that is refused":    {list, refused, "", time.Time{}},
		"a watch":                   {follow, nil, watch.Bookmark, noon},
		"a watch that is refused":   {follow, refused, "", time.Time{}},
		"a watch that ends at once": {follow, nil, watch.Error, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			served := &toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					return &v1alpha1.SidecarSetList{}, c.answer
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					granted := watch.NewFakeWithChanSize(1, false)
					granted.Action(c.brings, &metav1.Status{})
					return granted, c.answer
				},
			}
			w := &setWatch{now: func() time.Time { return noon }}
			require.ErrorIs(t, c.request(observedListerWatcher{ListerWatcher: served, setWatch: w}), c.answer)
			assert.Equal(t, c.mentions, w.lastRequest())
		})
	}
}

func list(l toolscache.ListerWatcherWithContext) error {
	_, err := l.ListWithContext(context.Background(), metav1.ListOptions{})
	return err
}

// follow waits for the first event.
func follow(l toolscache.ListerWatcherWithContext) error {
	granted, err := l.WatchWithContext(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer granted.Stop()
	<-granted.ResultChan()
	return nil
}

func TestOnlySetsAreNoted(t *testing.T) {
	served := &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return nil, errors.New("away") },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			events := watch.NewFakeWithChanSize(1, false)
			end := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
			events.Action(watch.Bookmark, end)
			return events, nil
		},
	}
	w := &setWatch{now: time.Now}
	pods := w.observing(toolscache.NewSharedIndexInformer)(served, &corev1.Pod{}, 0, nil)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		pods.RunWithContext(ctx)
		close(ended)
	}()
	require.True(t, toolscache.WaitForCacheSync(ctx.Done(), pods.HasSynced))
	stop()
	<-ended
	assert.Zero(t, w.lastRequest())
}
