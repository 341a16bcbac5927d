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
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/kube"
)

var noon = time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)

// newActivities are some whose API server holds these objects.
func newActivities(t *testing.T, calls interceptor.Funcs, objects ...client.Object) (*Activities, *clocktesting.FakeClock) {
	t.Helper()
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(calls).Build()
	clock := clocktesting.NewFakeClock(noon)
	metrics, err := NewMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	return &Activities{Live: server, Cache: server, Writer: server, SystemNamespace: "kruise-system", Clock: clock, Changes: NewChanges(), Metrics: metrics, Tracer: noop.Tracer{}}, clock
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

// acquire reports whether that took the Lease from another run.
func acquire(ctx context.Context, l *rolloutLease) (takenOver bool, err error) {
	err = l.acquire(ctx, func(context.Context) error {
		takenOver = true
		return nil
	})
	return takenOver, err
}

// acquiring acquires the Lease in the background, and lets the time pass that it waits.
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

func TestTheFirstRunHoldsTheLeaseAtOnce(t *testing.T) {
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

func TestARunThatTakesOverWaitsUntilTheOtherMustHaveStopped(t *testing.T) {
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

// A worker that was frozen in the middle of taking over wakes up too late.
func TestOnlyOneOfTwoThatTakeOverHoldsTheLease(t *testing.T) {
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

func TestReleasedLeasesAreTakenAtOnce(t *testing.T) {
	a, _ := newActivities(t, interceptor.Funcs{})
	one, two := leaseOf(a, "one"), leaseOf(a, "two")
	_, err := acquire(t.Context(), one)
	require.NoError(t, err)
	require.NoError(t, two.release(t.Context(), false), "not its own")
	assert.True(t, held(t, one))
	require.NoError(t, one.release(t.Context(), false))
	takenOver, err := acquire(t.Context(), two)
	require.NoError(t, err)
	assert.False(t, takenOver)
	assert.True(t, held(t, two))
	assert.False(t, held(t, one))
	require.NoError(t, two.release(t.Context(), true))
	left, err := two.read(t.Context())
	require.NoError(t, err)
	assert.Nil(t, left, "nothing stays of a set that is gone")
}

// Whoever becomes the holder without having seen what the other one wrote would
// plan without it.
func TestALeaseIsNotTakenWhenWhatComesBeforeFails(t *testing.T) {
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
