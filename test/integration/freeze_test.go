package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// freeze creates a RolloutFreeze that selects the SidecarSets with the label freeze=<name>.
func freeze(ctx context.Context, t *testing.T, name, reason string, until *metav1.Time) *outriggerv1.RolloutFreeze {
	t.Helper()
	created := &outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: name}}
	created.Spec = outriggerv1.RolloutFreezeSpec{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"freeze": name}}, Reason: reason, Until: until}
	require.NoError(t, stack.kube.Create(ctx, created))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(stack.kube.Delete(context.WithoutCancel(ctx), created)))
	})
	return created
}

func frozenBy(name string) func(*v1alpha1.SidecarSet) {
	return func(set *v1alpha1.SidecarSet) { set.Labels = map[string]string{"freeze": name} }
}

// The test kills the operator and the workers during the freeze.
func TestSpec11_7_AFreezeStopsAllSelectedRolloutsUntilItIsDeleted(t *testing.T) {
	const pods = 20
	name := scenarioName(t)
	var scenarios []*scenario
	for i := range 3 {
		scenarios = append(scenarios, newNamedScenario(t, fmt.Sprintf("%s-%d", name, i), pods, nil, frozenBy(name)).slow("4s"))
	}
	each := func(do func(*scenario)) {
		for _, s := range scenarios {
			do(s)
		}
	}
	each(func(s *scenario) { s.upgradeTo("side:v2") })
	each(func(s *scenario) { s.await(func(v observer.View) bool { return v.Updated >= 2 }) })
	created := freeze(scenarios[0].ctx, t, name, "sales", nil)
	began := time.Now()
	each(func(s *scenario) {
		assert.Contains(t, s.awaitReason(v1alpha1.ReasonFrozen), "frozen by RolloutFreeze "+name+": sales; ")
		s.awaitPhase(protocol.PhaseFrozen)
	})
	upgraded := map[string]int{}
	each(func(s *scenario) {
		upgraded[s.name] = s.watched.View().Updated
		assert.Less(t, upgraded[s.name], pods, "the freeze came too late for this test")
		asked, _ := s.watched.Updates()
		t.Logf("%s: the last pod was upgraded %v after the creation of the freeze", s.name, asked[len(asked)-1].At.Sub(began))
	})

	killed := []string{"operator", "worker-1", "worker-2"}
	for _, process := range killed {
		require.NoError(t, stack.Kill(process))
	}
	for _, process := range killed {
		require.NoError(t, stack.StartAgain(scenarios[0].ctx, process))
	}
	// The new reason shows that the restarted processes have read the freeze.
	created.Spec.Reason = "more sales"
	require.NoError(t, stack.kube.Update(scenarios[0].ctx, created))
	each(func(s *scenario) {
		s.awaitSet("the new reason", func(*v1alpha1.SidecarSet) bool {
			return strings.Contains(s.awaitReason(v1alpha1.ReasonFrozen), ": more sales; ")
		})
		require.NoError(t, stack.temporal.SignalWorkflow(s.ctx, s.workflow(), "", protocol.GenerationSignal, protocol.GenerationInput{Generation: s.set.Generation}))
		s.awaitStatus("the new reason in the run", func(status protocol.RolloutStatus) bool {
			return status.Phase == protocol.PhaseFrozen && strings.Contains(status.Message, ": more sales; ")
		})
		s.await(func(v observer.View) bool { return v.InFlight == 0 })
	})
	each(func(s *scenario) { assert.Equal(t, upgraded[s.name], s.watched.View().Updated, s.name) })

	require.NoError(t, stack.kube.Delete(scenarios[0].ctx, created))
	each(func(s *scenario) {
		s.await(observer.Converged(pods))
		s.awaitPhase(protocol.PhaseComplete)
		s.awaitSet("the end", counts(pods))
		assert.Equal(t, pods, s.watched.Asked("side:v2"), "each pod is upgraded once")
		s.within(2)
	})
}

func TestSpec11_7_AFreezeEndsByItself(t *testing.T) {
	t.Parallel()
	const pods = 20
	name := scenarioName(t)
	s := newNamedScenario(t, name, pods, map[string]string{readyAfter: "1s"}, frozenBy(name))
	until := metav1.NewTime(time.Now().Add(time.Hour).Truncate(time.Second))
	frozen := freeze(s.ctx, t, name, "", &until)
	s.upgradeTo("side:v2")
	assert.Contains(t, s.awaitReason(v1alpha1.ReasonFrozen), "frozen by RolloutFreeze "+name+" until "+until.UTC().Format(time.RFC3339)+"; ")
	s.awaitPhase(protocol.PhaseFrozen)
	// A freeze of an hour is too long for a test, so the test shortens the freeze.
	inForce := time.Now()
	until = metav1.NewTime(inForce.Add(5 * time.Second).Truncate(time.Second))
	frozen.Spec.Until = &until
	require.NoError(t, stack.kube.Update(s.ctx, frozen))
	s.await(observer.Converged(pods))
	s.awaitSet("the end", counts(pods))
	asked, _ := s.watched.Updates()
	first := slices.IndexFunc(asked, func(u observer.Update) bool { return u.At.After(inForce) })
	require.GreaterOrEqual(t, first, 0, "all pods were upgraded before the freeze")
	assert.False(t, asked[first].At.Before(until.Time), "a pod was upgraded at %v, before the end of the freeze", asked[first].At)
	t.Logf("the first pod was upgraded %v after the end of the freeze", asked[first].At.Sub(until.Time))
}

func TestSpec11_7_InvalidFreezesAreRejected(t *testing.T) {
	t.Parallel()
	const until = "until is a time in RFC 3339, such as 2026-12-24T18:00:00Z"
	for name, c := range map[string]struct{ spec, says string }{
		"a day that no month has": {"{until: '2026-02-30T00:00:00Z'}", until},
		"no time":                 {"{until: tomorrow}", until},
		"a time without a zone":   {"{until: '2026-11-28T00:00:00'}", until},
		"an impossible time":      {"{until: '2026-13-28T00:00:00Z'}", until},
		"an impossible time zone": {"{until: '2026-11-28T00:00:00+99:00'}", until},
		"a long reason":           {"{reason: " + strings.Repeat("x", 1025) + "}", "spec.reason"},
		"an unknown operator":     {"{selector: {matchExpressions: [{key: tier, operator: Near}]}}", "the operators In and NotIn need values"},
		"In without values":       {"{selector: {matchExpressions: [{key: tier, operator: In}]}}", "the operators In and NotIn need values"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := kubectl(t.Context(), "{apiVersion: outrigger.io/v1alpha1, kind: RolloutFreeze, metadata: {name: invalid}, spec: "+c.spec+"}", "create", "--dry-run=server", "-f", "-")
			require.Error(t, err, out)
			assert.Contains(t, out, c.says)
			assert.NotContains(t, out, "should match", "a regular expression is no remedy")
		})
	}
}
