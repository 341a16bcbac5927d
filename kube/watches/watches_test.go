package watches

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	clocktesting "k8s.io/utils/clock/testing"
)

// scripted responds to each request with the result that the test sets.
type scripted struct {
	lists   chan error
	watches chan func() (watch.Interface, error)
}

func newScripted() *scripted {
	return &scripted{lists: make(chan error, 10), watches: make(chan func() (watch.Interface, error), 10)}
}

func (s *scripted) listWatch() *toolscache.ListWatch {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, <-s.lists
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return (<-s.watches)() },
	}
}

func (s *scripted) grants(w watch.Interface) {
	s.watches <- func() (watch.Interface, error) { return w, nil }
}

func (s *scripted) refuses(err error) {
	s.watches <- func() (watch.Interface, error) { return nil, err }
}

type watchEnvironment struct {
	t     *testing.T
	api   *scripted
	clock *clocktesting.FakeClock
	*monitoredListWatch
}

func newWatchEnvironment(t *testing.T) *watchEnvironment {
	api, clock := newScripted(), clocktesting.NewFakeClock(time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
	return &watchEnvironment{t: t, api: api, clock: clock, monitoredListWatch: newMonitoredListWatch(api.listWatch(), clock)}
}

func (s *watchEnvironment) open(from *watch.FakeWatcher, streaming bool) watch.Interface {
	s.t.Helper()
	s.api.grants(from)
	opened, err := s.watch(s.t.Context(), metav1.ListOptions{SendInitialEvents: &streaming})
	require.NoError(s.t, err)
	return opened
}

func (s *watchEnvironment) downFor(want time.Duration, why string) {
	s.t.Helper()
	down, _ := s.down()
	assert.Equal(s.t, want, down, why)
}

func initialEnd() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
}

func TestAWatchCountsAsUpOnceItLasts(t *testing.T) {
	s := newWatchEnvironment(t)
	s.clock.Step(5 * time.Second)
	s.downFor(5*time.Second, "before the first one")
	from := watch.NewFake()
	opened := s.open(from, false)
	s.downFor(5*time.Second, "the API server may end it with an error immediately")
	s.clock.Step(minUptime)
	s.downFor(0, "it lasts")

	from.Stop()
	<-opened.ResultChan()
	s.clock.Step(time.Second)
	s.downFor(time.Second, "it has ended")
}

// eventually waits until holds returns true, because another goroutine changes the state.
func (s *watchEnvironment) eventually(holds func() bool) {
	s.t.Helper()
	require.Eventually(s.t, holds, 10*time.Second, time.Millisecond)
}

func TestAWatchThatEndsWithAnErrorAtOnceNeverCounts(t *testing.T) {
	s := newWatchEnvironment(t)
	from := watch.NewFakeWithChanSize(1, false)
	expired := apierrors.NewResourceExpired("too old resource version").Status()
	from.Error(&expired)
	opened := s.open(from, false)
	event := <-opened.ResultChan()
	assert.Equal(t, watch.Error, event.Type)
	assert.True(t, apierrors.IsResourceExpired(apierrors.FromObject(event.Object)), "the reflector gets it")
	s.clock.Step(time.Minute)
	s.downFor(time.Minute, "it ended")
	_, cause := s.down()
	assert.True(t, apierrors.IsResourceExpired(cause))
}

func TestAStreamIsBehindUntilItsFirstObjectsAreThere(t *testing.T) {
	s := newWatchEnvironment(t)
	from := watch.NewFakeWithChanSize(2, false)
	from.Add(&corev1.Pod{})
	opened := s.open(from, true)
	<-opened.ResultChan()
	s.clock.Step(time.Minute)
	s.downFor(time.Minute, "more may come")
	from.Action(watch.Bookmark, initialEnd())
	<-opened.ResultChan()
	s.clock.Step(minUptime)
	s.downFor(0, "that was all")
}

func TestTheEndOfAReplacedWatchDoesNotCount(t *testing.T) {
	s := newWatchEnvironment(t)
	old := watch.NewFake()
	first := s.open(old, false)
	s.open(watch.NewFake(), false)
	s.clock.Step(minUptime)
	s.downFor(0, "the second is up")
	old.Stop()
	_, more := <-first.ResultChan()
	assert.False(t, more)
	s.downFor(0, "the end of the first does not count")
}

func TestAWatchThatIsReplacedAtOnceWasHardlyDown(t *testing.T) {
	s := newWatchEnvironment(t)
	old := watch.NewFake()
	first := s.open(old, false)
	s.clock.Step(5 * time.Minute)
	s.downFor(0, "up")
	old.Stop()
	<-first.ResultChan()
	s.open(watch.NewFake(), false)
	s.clock.Step(minUptime - time.Millisecond)
	down, _ := s.down()
	assert.Less(t, down, StaleAfter)
	s.clock.Step(time.Millisecond)
	s.downFor(0, "up again")
}

func TestEveryFailurePassesThrough(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, failure := range map[string]error{
		"refused connection": syscall.ECONNREFUSED,
		"expired":            apierrors.NewResourceExpired("too old"),
		"forbidden":          apierrors.NewForbidden(pods, "", errors.New("no role")),
		"not found":          apierrors.NewNotFound(pods, ""),
		"too many requests":  apierrors.NewTooManyRequests("busy", 1),
		"unavailable":        apierrors.NewServiceUnavailable("starting"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newWatchEnvironment(t)
			s.api.lists <- failure
			_, err := s.list(t.Context(), metav1.ListOptions{})
			assert.Equal(t, failure, err)
			s.api.refuses(failure)
			_, err = s.watch(t.Context(), metav1.ListOptions{})
			assert.Equal(t, failure, err)
			_, cause := s.down()
			assert.Equal(t, failure, cause)
		})
	}
}

func TestAPermanentRejectionIsRetriedWithBackoff(t *testing.T) {
	s := newWatchEnvironment(t)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no role"))
	ask := func(ctx context.Context) chan error {
		answer := make(chan error, 1)
		s.api.lists <- forbidden
		go func() {
			_, err := s.list(ctx, metav1.ListOptions{})
			answer <- err
		}()
		return answer
	}
	require.Equal(t, error(forbidden), <-ask(t.Context()), "an API server that has just started knows no roles")
	s.clock.Step(rejectionGracePeriod)
	held := ask(t.Context())
	s.eventually(s.clock.HasWaiters)
	s.clock.Step(rejectionBackoff - 1)
	assert.Empty(t, held)
	s.clock.Step(1)
	require.Equal(t, error(forbidden), <-held)

	ctx, stop := context.WithCancel(t.Context())
	held = ask(ctx)
	s.eventually(s.clock.HasWaiters)
	stop()
	require.Equal(t, error(forbidden), <-held, "the process ends")

	s.api.lists <- nil
	_, err := s.list(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, error(forbidden), <-ask(t.Context()), "the next refusal is a new one")

	// An accepted watch ends the rejection, because an informer that streams the initial list sends no list
	// request.
	opened := s.open(watch.NewFake(), false)
	defer opened.Stop()
	s.clock.Step(rejectionGracePeriod)
	require.Equal(t, error(forbidden), <-ask(t.Context()), "the watch was accepted since the last refusal")
}

func TestAStoppedWatchReleasesItsWaiters(t *testing.T) {
	s := newWatchEnvironment(t)
	from := watch.NewFakeWithChanSize(1, false)
	from.Add(&corev1.Pod{})
	opened := s.open(from, false)
	opened.Stop()
	opened.Stop()
	for range opened.ResultChan() {
	}
	assert.True(t, from.IsStopped())
}

func TestWatchesKnowTheirTypes(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	w := New(scheme.Scheme, clock)
	clock.Step(time.Minute)
	assert.Equal(t, time.Minute, w.Down(&corev1.Pod{}), "nothing watches pods")
	api := newScripted()
	informer := w.NewInformer(api.listWatch(), &corev1.Pod{}, 0, nil)
	require.NotNil(t, informer)
	require.NoError(t, w.Current(&corev1.Pod{}))
	clock.Step(StaleAfter + time.Second)
	require.EqualError(t, w.Current(&corev1.Pod{}), "the watch of Pods has been down for 3s, so that the cache may be out of date")
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(w))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	assert.Equal(t, watchDown, families[0].GetName())
	assert.Equal(t, "Pod", families[0].GetMetric()[0].GetLabel()[0].GetValue())
	assert.Equal(t, 3.0, families[0].GetMetric()[0].GetGauge().GetValue())
}

// noWatchList is a client that cannot stream the initial list.
type noWatchList struct{ toolscache.ListerWatcher }

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

func TestAClientWithoutWatchListIsRecognized(t *testing.T) {
	recognized := func(client toolscache.ListerWatcher) bool {
		adapter := &reflectorAdapter{monitoredListWatch: newMonitoredListWatch(client, clocktesting.NewFakeClock(time.Now()))}
		return watchlist.DoesClientNotSupportWatchListSemantics(adapter.listerWatcher())
	}
	assert.True(t, recognized(noWatchList{newScripted().listWatch()}))
	assert.False(t, recognized(newScripted().listWatch()))
}
