package pods

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/watches"
	"github.com/outrigger/outrigger/webhook/fallback"
	"github.com/outrigger/outrigger/webhook/review"
	"github.com/outrigger/outrigger/webhook/server"
)

// stale is a handler whose watches are down, and the API server of the handler.
type stale struct {
	*Handler
	t     *testing.T
	clock *clocktesting.FakeClock
	live  client.WithWatch
	lists atomic.Int32
	// away, if set, is called instead of a list of the API server.
	away func(context.Context) error
}

func staleHandler(t *testing.T, cached []*v1alpha1.SidecarSet, stored ...client.Object) *stale {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	o := &stale{t: t, Handler: handlerFor(t, interceptor.Funcs{}, nil, cached...), clock: clocktesting.NewFakeClock(time.Now())}
	o.live = fake.NewClientBuilder().WithScheme(scheme).WithObjects(stored...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			o.lists.Add(1)
			if o.away != nil {
				return o.away(ctx)
			}
			return c.List(ctx, list, options...)
		},
	}).Build()
	for _, reads := range []*fallback.Reader{&o.sets.Reader, &o.namespaces, &o.revisions.Reader} {
		reads.Live = o.live
		reads.Stale = func() error { return watches.StaleError{Kind: "SidecarSet", Down: 3 * time.Second} }
	}
	o.sets.clock = o.clock
	return o
}

func imaged(image string) *v1alpha1.SidecarSet {
	sidecar := fixture.Sidecar("side")
	sidecar.Image = image
	return fixture.SidecarSet("s", sidecar)
}

func TestWithAStaleCacheSetsAreListedLive(t *testing.T) {
	o := staleHandler(t, []*v1alpha1.SidecarSet{imaged("side:old")}, imaged("side:new"))
	for range 3 {
		response := admitted(t, o.Handler, fixture.Pod(fixture.Container("app")))
		assert.Contains(t, string(response.Patch), "side:new")
		assert.NotContains(t, string(response.Patch), "side:old")
	}
	assert.Equal(t, int32(1), o.lists.Load(), "one list is for all pods of a second")

	require.NoError(t, o.live.Delete(t.Context(), imaged("side:new")))
	o.clock.Step(liveIndexTTL)
	assert.Empty(t, admitted(t, o.Handler, fixture.Pod(fixture.Container("app"))).Patch)

	o.sets.Stale = func() error { return nil }
	assert.Contains(t, string(admitted(t, o.Handler, fixture.Pod(fixture.Container("app"))).Patch), "side:old", "the watch is back")
	assert.Equal(t, int32(2), o.lists.Load())
}

func TestConcurrentRequestsShareOneList(t *testing.T) {
	o := staleHandler(t, nil, imaged("side:new"))
	answer := make(chan struct{})
	o.away = func(context.Context) error {
		<-answer
		return errors.New("away")
	}
	failure := make(chan error)
	go func() {
		_, err := o.sets.index(t.Context())
		failure <- err
	}()
	require.Eventually(t, func() bool { return o.lists.Load() == 1 }, 10*time.Second, time.Millisecond)
	hurried, giveUp := context.WithCancel(t.Context())
	giveUp()
	for range 20 {
		_, err := o.sets.index(hurried)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorAs(t, err, new(review.UndecidedError))
	}
	assert.Equal(t, int32(1), o.lists.Load())
	close(answer)
	require.ErrorAs(t, <-failure, new(review.UndecidedError))
}

func TestWithoutCacheAndAPIServerTheFailurePolicyDecides(t *testing.T) {
	o := staleHandler(t, []*v1alpha1.SidecarSet{imaged("side:old")})
	o.away = func(ctx context.Context) error {
		_, bounded := ctx.Deadline()
		assert.True(t, bounded)
		return errors.New("connection refused")
	}
	buffers := &server.Buffers{}
	buffers.Body.Write(reviewOf(t, fixture.Pod()))
	status, err := review.Answer(o.Answer)(t.Context(), buffers)
	assert.Equal(t, http.StatusInternalServerError, status)
	require.EqualError(t, err, "cannot decide whether this pod gets sidecars: "+
		"the watch of SidecarSets has been down for 3s, so that the cache may be out of date; list SidecarSets: connection refused")
	assert.Equal(t, 1.0, valueOf(t, o.metrics.rejected))
}

func TestWithAStaleCacheNamespacesAndRevisionsAreReadLive(t *testing.T) {
	set := inProduction("s")
	old, err := revision.New(set, "system", 1)
	require.NoError(t, err)
	set.Spec.Containers[0].Image = "side:v2"
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: &old.Name, Policy: v1alpha1.AlwaysSidecarSetInjectRevisionPolicy}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default", Labels: map[string]string{"env": "prod"}}}
	o := staleHandler(t, nil, set, old, namespace)
	response := admitted(t, o.Handler, fixture.Pod(fixture.Container("app")))
	require.True(t, response.Allowed)
	assert.Contains(t, string(response.Patch), "side:v1")
}
