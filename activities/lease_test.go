package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace/noop"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
)

var noon = time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)

// newActivities returns Activities with a fake API server that contains the objects.
func newActivities(t testing.TB, calls interceptor.Funcs, objects ...client.Object) (*Activities, *clocktesting.FakeClock) {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(calls).Build()
	clock := clocktesting.NewFakeClock(noon)
	return &Activities{
		Live: server, Cache: server, Writer: gatedClient{server}, SystemNamespace: "kruise-system", Clock: clock, Changes: &Changes{},
		Metrics: NewMetrics(prometheus.NewRegistry()), Tracer: noop.Tracer{}, Current: func() error { return nil },
	}, clock
}

func leaseOf(a *Activities, run string) *rolloutLease {
	return a.lease(protocol.SetReference{Name: "logs", UID: "u1"}, run)
}

func held(t *testing.T, l *rolloutLease) bool {
	t.Helper()
	mine, err := l.held(t.Context())
	require.NoError(t, err)
	return mine
}

// acquire acquires the Lease, and reports whether the run took the Lease over from another run.
func acquire(ctx context.Context, l *rolloutLease) (takenOver bool, err error) {
	err = l.acquire(ctx, func(context.Context) error {
		takenOver = true
		return nil
	})
	return takenOver, err
}

// acquiring acquires the Lease in the background, calls meanwhile during the wait, and advances the clock by
// the waiting time.
func acquiring(t *testing.T, l *rolloutLease, clock *clocktesting.FakeClock, meanwhile func()) (takenOver bool) {
	t.Helper()
	done := make(chan error)
	go func() {
		var err error
		takenOver, err = acquire(t.Context(), l)
		done <- err
	}()
	require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
	meanwhile()
	clock.Step(takeoverDelay)
	require.NoError(t, <-done)
	return takenOver
}

func TestTheFirstRunAcquiresTheLeaseAtOnce(t *testing.T) {
	a, _ := newActivities(t, interceptor.Funcs{})
	one := leaseOf(a, "one")
	takenOver, err := acquire(t.Context(), one)
	require.NoError(t, err)
	assert.False(t, takenOver)
	assert.True(t, held(t, one))
	takenOver, err = acquire(t.Context(), leaseOf(a, "one"))
	require.NoError(t, err, "another worker of the same run")
	assert.False(t, takenOver)
}

func TestATakeoverWaitsUntilThePreviousHolderHasStopped(t *testing.T) {
	a, clock := newActivities(t, interceptor.Funcs{})
	one, two := leaseOf(a, "one"), leaseOf(a, "two")
	_, err := acquire(t.Context(), one)
	require.NoError(t, err)
	require.True(t, held(t, one))
	takenOver := acquiring(t, two, clock, func() {
		assert.False(t, held(t, one), "from the moment that the other names itself")
		assert.False(t, held(t, two), "not yet")
	})
	assert.True(t, takenOver)
	assert.True(t, held(t, two))
	assert.False(t, held(t, one))
	assert.Greater(t, takeoverDelay, maxAge)
}

// A worker may be suspended during the wait for the Lease. Meanwhile, another run may acquire the Lease.
func TestOnlyOneOfTwoRunsAcquiresTheLease(t *testing.T) {
	a, clock := newActivities(t, interceptor.Funcs{})
	_, err := acquire(t.Context(), leaseOf(a, "one"))
	require.NoError(t, err)
	late := make(chan error)
	go func() {
		_, err := acquire(t.Context(), leaseOf(a, "two"))
		late <- err
	}()
	require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
	lease := &coordinationv1.Lease{}
	key := types.NamespacedName{Namespace: "kruise-system", Name: "outrigger-rollout-logs"}
	require.NoError(t, a.Live.Get(t.Context(), key, lease))
	three := leaseOf(a, "three")
	require.NoError(t, three.hold(t.Context(), lease))
	clock.Step(takeoverDelay)
	require.ErrorContains(t, <-late, "update Lease kruise-system/outrigger-rollout-logs")
	assert.True(t, held(t, three))
}

func TestReleasedLeasesAreAcquiredAtOnce(t *testing.T) {
	a, _ := newActivities(t, interceptor.Funcs{})
	one, two := leaseOf(a, "one"), leaseOf(a, "two")
	_, err := acquire(t.Context(), one)
	require.NoError(t, err)
	require.NoError(t, two.release(t.Context(), false), "not its own")
	assert.True(t, held(t, one))
	require.NoError(t, one.release(t.Context(), false))
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1alpha1", Kind: "SidecarSet", Name: "logs", UID: "u1"}}, owners(t, one),
		"nobody is left to delete it after the set")
	takenOver, err := acquire(t.Context(), two)
	require.NoError(t, err)
	assert.False(t, takenOver)
	assert.Empty(t, owners(t, two), "the set may be made again while this run still writes")
	assert.True(t, held(t, two))
	assert.False(t, held(t, one))
	require.NoError(t, two.release(t.Context(), true))
	left, err := two.read(t.Context())
	require.NoError(t, err)
	assert.Nil(t, left, "nothing stays of a set that is gone")
}

func owners(t *testing.T, l *rolloutLease) []metav1.OwnerReference {
	t.Helper()
	lease, err := l.read(t.Context())
	require.NoError(t, err)
	require.NotNil(t, lease)
	return lease.OwnerReferences
}

// A Lease of an earlier release has no owner, and the Lease of a terminated run still has a holder.
func TestLeasesOfDeletedSetsAreRemoved(t *testing.T) {
	lease := func(name, holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: name, UID: types.UID(name)},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}
	}
	named := func(name string) *v1alpha1.SidecarSet {
		set := logs(1)
		set.Name, set.UID = name, types.UID("uid-of-"+name)
		return set
	}
	a, clock := newActivities(t, interceptor.Funcs{}, named("idle"), named("busy"), lease("outrigger-worker", "w"),
		lease("outrigger-rollout-idle", ""), lease("outrigger-rollout-busy", "run"), lease("outrigger-rollout-gone", ""), lease("outrigger-rollout-lost", "run"))
	lost := a.lease(protocol.SetReference{Name: "lost"}, "run")
	require.True(t, held(t, lost))
	tidied := make(chan error)
	go func() { tidied <- a.CleanUpLeases(t.Context()) }()
	require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
	assert.False(t, held(t, lost), "a run of the set may still write")
	require.NoError(t, a.Live.Get(t.Context(), types.NamespacedName{Namespace: "kruise-system", Name: "outrigger-rollout-lost"}, &coordinationv1.Lease{}),
		"a new set of that name must not find its Lease free")
	clock.Step(takeoverDelay)
	require.NoError(t, <-tidied)
	var left coordinationv1.LeaseList
	require.NoError(t, a.Live.List(t.Context(), &left))
	found := map[string][]metav1.OwnerReference{}
	for _, lease := range left.Items {
		found[lease.Name] = lease.OwnerReferences
	}
	assert.Equal(t, map[string][]metav1.OwnerReference{
		"outrigger-worker": nil, "outrigger-rollout-busy": nil,
		"outrigger-rollout-idle": {{APIVersion: "apps.kruise.io/v1alpha1", Kind: "SidecarSet", Name: "idle", UID: "uid-of-idle"}},
	}, found)
}

// If takeOver fails, the run does not observe the writes of the previous holder, and must not make plans.
func TestALeaseIsNotAcquiredAfterAFailedTakeover(t *testing.T) {
	a, clock := newActivities(t, interceptor.Funcs{})
	one, two := leaseOf(a, "one"), leaseOf(a, "two")
	_, err := acquire(t.Context(), one)
	require.NoError(t, err)
	failed := make(chan error)
	go func() {
		failed <- two.acquire(t.Context(), func(context.Context) error { return errors.New("cannot list pods") })
	}()
	require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
	clock.Step(takeoverDelay)
	require.EqualError(t, <-failed, "cannot list pods")
	assert.False(t, held(t, two))
	assert.True(t, acquiring(t, two, clock, func() {}), "the next attempt takes over again")
	assert.True(t, held(t, two))
}
