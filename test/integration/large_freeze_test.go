//go:build large

package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

// The test kills and restarts every process during the freeze.
func TestLargeFreezeStops300SidecarSets(t *testing.T) {
	const sets, pods = 300, 4
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	ns := "freeze300"
	require.NoError(t, stack.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}))
	config, err := stack.RESTConfig()
	require.NoError(t, err)
	watched, err := observer.WatchPods(ctx, config, ns, "", "side", "")
	require.NoError(t, err)
	watched.Expect("side:v1")
	each := func(do func(i int)) {
		var wg sync.WaitGroup
		for w := range 10 {
			wg.Go(func() {
				for i := w; i < sets; i += 10 {
					do(i)
				}
			})
		}
		wg.Wait()
	}
	name := func(i int) string { return fmt.Sprintf("f-%d", i) }
	one := intstr.FromInt32(1)
	each(func(i int) {
		set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name(i)}}
		set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v1"}}}
		set.Spec.UpdateStrategy.MaxUnavailable = &one
		require.NoError(t, stack.kube.Create(ctx, set))
	})
	defer each(func(i int) {
		_ = stack.kube.Delete(context.WithoutCancel(ctx), &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name(i)}})
	})
	each(func(i int) {
		d := deployment(name(i), pods)
		d.Namespace, d.Name = ns, name(i)
		d.Spec.Template.Annotations = map[string]string{readyAfter: "4s"}
		require.NoError(t, stack.kube.Create(ctx, d))
	})
	_, err = watched.Await(ctx, observer.Converged(sets*pods))
	require.NoError(t, err)
	watched.Expect("side:v2")
	each(func(i int) {
		set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}
		require.NoError(t, stack.kube.Patch(ctx, set, client.RawPatch("application/json-patch+json", []byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"side:v2"}]`))))
	})
	_, err = watched.Await(ctx, func(v observer.View) bool { return v.Updated >= sets/2 })
	require.NoError(t, err)
	freeze := &outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: outriggerv1.RolloutFreezeSpec{Reason: "stop"}}
	began := time.Now()
	require.NoError(t, stack.kube.Create(ctx, freeze))
	defer func() { _ = stack.kube.Delete(context.WithoutCancel(ctx), freeze) }()
	frozen, err := watched.Await(ctx, func(v observer.View) bool { return v.InFlight == 0 })
	require.NoError(t, err)
	t.Logf("frozen at %d of %d pods", frozen.Updated, sets*pods)
	require.Less(t, frozen.Updated, sets*pods, "pods that the freeze stops")
	killed := []string{"operator", "webhook", "worker-1", "worker-2", cluster.Temporal}
	for _, process := range killed {
		require.NoError(t, stack.Kill(process))
	}
	for i := len(killed) - 1; i >= 0; i-- {
		require.NoError(t, stack.StartAgain(ctx, killed[i]))
	}
	t.Logf("restarted everything by %v", time.Since(began))
	until := metav1.NewTime(time.Now().Add(10 * time.Second).Truncate(time.Second))
	patch := fmt.Appendf(nil, `{"spec":{"until":%q}}`, until.UTC().Format(time.RFC3339))
	require.NoError(t, stack.kube.Patch(ctx, freeze, client.RawPatch(types.MergePatchType, patch)))
	_, err = watched.Await(ctx, observer.Converged(sets*pods))
	require.NoError(t, err)
	asked, _ := watched.Updates()
	var last, first time.Time
	between := 0
	for _, u := range asked {
		switch {
		case u.At.Before(until.Time):
			if u.At.After(last) {
				last = u.At
			}
			if u.At.After(began.Add(2 * time.Second)) {
				between++
			}
		case first.IsZero() || u.At.Before(first):
			first = u.At
		}
	}
	t.Logf("last write %v after the freeze; %d writes later than 2s and before its end; first write %v after its end; %d writes for %d pods", last.Sub(began), between, first.Sub(until.Time), len(asked), sets*pods)
	assert.Zero(t, between)
	assert.Len(t, asked, sets*pods)
}
