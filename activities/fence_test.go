package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func logs(generation int64) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "logs", UID: "u1", Generation: generation}}
	set.Spec.UpdateStrategy.Type = v1alpha1.RollingUpdateSidecarSetStrategyType
	return set
}

// The cache may be 30 seconds old, so the fence reads the SidecarSet from the API server.
func TestTheFenceStopsWritesOfAPausedOrNewerSet(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.SidecarSet){
		"":                       func(*v1alpha1.SidecarSet) {},
		"paused":                 func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Paused = true },
		"updates are off":        func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType },
		"generation is 3":        func(s *v1alpha1.SidecarSet) { s.Generation = 3 },
		"generation is 1":        func(s *v1alpha1.SidecarSet) { s.Generation = 1 },
		"the SidecarSet is gone": func(s *v1alpha1.SidecarSet) { s.UID = "another" },
	} {
		set := logs(2)
		change(set)
		a, _ := newActivities(t, interceptor.Funcs{}, set)
		a.Cache = nil
		fence := a.newFence(leaseOf(a, "one"), 2)
		_, err := acquire(t.Context(), fence.lease)
		require.NoError(t, err)
		_, err = fence.check(t.Context())
		if want == "" {
			require.NoError(t, err)
		} else {
			assert.Equal(t, stopped(want), err)
		}
	}
}

func TestTheFenceStopsARunThatLostTheLease(t *testing.T) {
	a, clock := newActivities(t, interceptor.Funcs{}, logs(2))
	fence := a.newFence(leaseOf(a, "one"), 2)
	_, err := acquire(t.Context(), fence.lease)
	require.NoError(t, err)
	acquiring(t, leaseOf(a, "two"), clock, func() {})
	_, err = fence.check(t.Context())
	assert.Equal(t, stopped("another run has taken over"), err)
}

// The fence reads the SidecarSet and the Lease together, and neither may be older than maxAge.
func TestALateReadOfTheLeaseMakesTheReadOfTheSetTooOld(t *testing.T) {
	var clock *clocktesting.FakeClock
	late := maxAge + time.Millisecond
	slow := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*coordinationv1.Lease); ok {
			clock.Step(late)
		}
		return c.Get(ctx, key, o, opts...)
	}}
	var a *Activities
	a, clock = newActivities(t, slow, logs(2))
	fence := a.newFence(leaseOf(a, "one"), 2)
	_, err := acquire(t.Context(), fence.lease)
	require.NoError(t, err)
	_, err = fence.check(t.Context())
	require.EqualError(t, err, "read SidecarSet logs and its Lease: the answer took 2.001s and is too old to act on")
	late = maxAge
	_, err = fence.check(t.Context())
	require.NoError(t, err)
}

func TestASetWithoutUpgradesNeedsNoLease(t *testing.T) {
	away := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*coordinationv1.Lease); ok {
			return errors.New("connection refused")
		}
		return c.Get(ctx, key, o, opts...)
	}}
	set := logs(2)
	a, _ := newActivities(t, away, set)
	_, err := a.newFence(leaseOf(a, "one"), 2).check(t.Context())
	require.EqualError(t, err, "read Lease kruise-system/outrigger-rollout-logs: connection refused")
	_, err = a.newFence(leaseOf(a, "one"), 1).check(t.Context())
	assert.Equal(t, stopped("generation is 2"), err)
}

func TestNothingIsWrittenWhileTheSetCannotBeRead(t *testing.T) {
	away := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("connection refused")
	}}
	a, _ := newActivities(t, away, logs(2))
	_, err := a.newFence(leaseOf(a, "one"), 2).check(t.Context())
	require.EqualError(t, err, "read SidecarSet logs: connection refused")
}

func TestWritesAreWaitedForUntilTheCacheShowsThem(t *testing.T) {
	pod := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "a", UID: "p1", ResourceVersion: version}}
	}
	reference := protocol.PodReference{Namespace: "d", Name: "a", UID: "p1"}
	for name, c := range map[string]struct {
		cached, live []client.Object
		written      string
		left         []int // the number of unseen writes, immediately and after liveReadAfter
	}{
		"shown":                                {[]client.Object{pod("7")}, nil, "7", []int{0}},
		"newer":                                {[]client.Object{pod("8")}, nil, "7", []int{0}},
		"late":                                 {[]client.Object{pod("6")}, []client.Object{pod("7")}, "7", []int{1, 1}},
		"gone":                                 {nil, nil, "7", []int{0}},
		"not created in the cache yet":         {nil, []client.Object{pod("7")}, "7", []int{1, 1}},
		"perhaps written, and shown":           {[]client.Object{pod("7")}, []client.Object{pod("7")}, "", []int{0}},
		"perhaps written, and late":            {[]client.Object{pod("6")}, []client.Object{pod("7")}, "", []int{1, 1}},
		"resourceVersions that went backwards": {[]client.Object{pod("5")}, []client.Object{pod("5")}, "700", []int{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			a, clock := newActivities(t, interceptor.Funcs{}, c.live...)
			cache, _ := newActivities(t, interceptor.Funcs{}, c.cached...)
			a.Cache = cache.Live
			writes := a.unseenWrites([]protocol.WrittenPod{{PodReference: reference, ResourceVersion: c.written}})
			for i, want := range c.left {
				clock.Step(time.Duration(i) * liveReadAfter)
				left, err := writes.count(t.Context())
				require.NoError(t, err)
				assert.Equal(t, want, left, i)
			}
		})
	}
}
