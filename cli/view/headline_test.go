package view

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestTheWriterOfAPauseBySpecIsNamed(t *testing.T) {
	set, _ := logs(t)
	wrote := func(manager, fields string, at time.Time) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Time: new(metav1.NewTime(at)), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	set.ManagedFields = []metav1.ManagedFieldsEntry{
		wrote("kubectl-client-side-apply", `{"f:spec":{"f:updateStrategy":{"f:maxUnavailable":{}}}}`, noon),
		wrote("kubectl-patch", `{"f:spec":{"f:updateStrategy":{"f:paused":{}}}}`, noon.Add(-72*time.Hour)),
	}
	assert.Empty(t, writerOfPause(set, noon))
	set.Spec.UpdateStrategy.Paused = true
	assert.Equal(t, ", written by kubectl-patch, whose last write was 3d ago", writerOfPause(set, noon))
	set.ManagedFields = set.ManagedFields[:1]
	assert.Empty(t, writerOfPause(set, noon))
}

// The list names the sender, the reason and the time of a pause, and the command that resumes the rollout.
func TestSpec8_0_12_ListNamesThePauses(t *testing.T) {
	paused := func(name string, pause *protocol.Pause) Summary {
		return Summary{Name: name, Headline: "Paused", Attention: []string{attentionPaused}, Pause: pause, Created: noon}
	}
	all := Summaries{
		paused("a", &protocol.Pause{By: "bob", Reason: "incident 4711", At: noon.Add(-72 * time.Hour)}), paused("b", nil),
		{Name: "c", Headline: "Complete", Created: noon}, paused("d", &protocol.Pause{}), paused("e", nil), paused("f", nil), paused("g", nil),
	}
	all[1].pausedBy = ", written by kubectl-patch, whose last write was 3d ago"
	_, lines, _ := strings.Cut(all.Text(Style{Now: noon}), "\na: ")
	assert.Equal(t, `paused for 3d by bob: incident 4711 (kubectl sidecarset resume a)
b: paused by spec.updateStrategy.paused, written by kubectl-patch, whose last write was 3d ago (kubectl sidecarset resume b)
d: paused by an unknown user (kubectl sidecarset resume d)
e: paused by spec.updateStrategy.paused (kubectl sidecarset resume e)
f: paused by spec.updateStrategy.paused (kubectl sidecarset resume f)
and 1 SidecarSet more: kubectl sidecarset status NAME
`, lines)
}

func TestAHeadlineNeverContradictsItsReason(t *testing.T) {
	const progressing, waiting, paused, complete = protocol.PhaseProgressing, protocol.PhaseWaiting, protocol.PhasePaused, protocol.PhaseComplete
	some := facts{observed: true, matched: 6, updated: 2}
	for _, c := range []struct {
		want   string
		phase  protocol.Phase
		change func(*facts)
	}{
		{"Progressing", progressing, func(f *facts) { f.progressing = "RolloutInProgress" }},
		{"Progressing", waiting, func(f *facts) { f.progressing = "WaitingForPods" }},
		{"Progressing", progressing, func(f *facts) { f.degraded = "ImagePullBackOff" }},
		{"Progressing", progressing, func(f *facts) { f.progressing = "RolloutComplete" }},
		{"Paused", paused, func(f *facts) { f.progressing = "RolloutInProgress" }},
		{"Paused", paused, func(f *facts) { f.progressing = "WorkerUnavailable" }},
		{"Paused", paused, func(f *facts) { f.observed = false }},
		{"NotUpdate", protocol.PhaseNotUpdate, func(f *facts) { f.notUpgradable = true }},
		{"PartitionReached", protocol.PhasePartitionReached, func(f *facts) { f.notUpgradable = true }},
		{"Pending", progressing, func(f *facts) { f.observed = false }},
		{"Pending", complete, func(f *facts) { f.observed, f.updated = false, 6 }},
		{"nothing to do: no pod matches", complete, func(f *facts) { f.matched, f.updated, f.progressing = 0, 0, "RolloutComplete" }},
		{"Waiting (WorkerUnavailable)", progressing, func(f *facts) { f.progressing = "WorkerUnavailable" }},
		{"Waiting (WorkerUnavailable)", waiting, func(f *facts) { f.progressing, f.degraded = "WorkerUnavailable", "ImagePullBackOff" }},
		{"Waiting (EngineUnavailable)", progressing, func(f *facts) { f.progressing = "EngineUnavailable" }},
		{"Waiting (EngineThrottled)", waiting, func(f *facts) { f.progressing = "EngineThrottled" }},
		{"Stalled (RolloutFailing)", waiting, func(f *facts) { f.progressing = "RolloutFailing" }},
		{"Stalled (RunUnreadable)", progressing, func(f *facts) { f.progressing = "RunUnreadable" }},
		{"Stalled (ImagePullBackOff)", waiting, func(f *facts) { f.progressing, f.degraded = "WaitingForPods", "ImagePullBackOff" }},
		{"Stalled (ContainerCannotStart)", waiting, func(f *facts) { f.degraded = "ContainerCannotStart" }},
		{"Waiting (maxUnavailable 0)", waiting, func(f *facts) { f.noSlots = true }},
		{"Stalled (NotUpgradablePods)", complete, func(f *facts) { f.notUpgradable = true }},
		{"Stalled (Invalid)", progressing, func(f *facts) { f.progressing, f.matched = "Invalid", 0 }},
		{"Complete (updateStrategy.selector)", complete, func(*facts) {}},
		{"Complete", complete, func(f *facts) { f.updated = 6 }},
		{"Complete", complete, func(f *facts) { f.updated, f.progressing, f.degraded = 6, "WaitingForPods", "ImagePullBackOff" }},
	} {
		f := some
		f.phase = c.phase
		c.change(&f)
		assert.Equal(t, c.want, headline(f), "%+v", f)
	}
}

func TestStatusAndListHaveTheSameHeadline(t *testing.T) {
	for _, c := range []struct {
		want, reason string
		attention    []string
		change       func(*Input)
	}{
		{"Stalled (ImagePullBackOff)", "WaitingForPods", []string{"ImagePullBackOff"}, func(*Input) {}},
		{"Waiting (WorkerUnavailable)", "WorkerUnavailable", []string{"ImagePullBackOff"}, func(*Input) {}},
		{"Paused", "Paused", []string{"ImagePullBackOff", "Paused"}, func(in *Input) {
			in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
		}},
		{"Paused", "EngineUnavailable", []string{"ImagePullBackOff", "Paused"}, func(in *Input) {
			in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
		}},
		{"Paused", "Paused", []string{"ImagePullBackOff", "Paused"}, func(in *Input) { in.Set.Spec.UpdateStrategy.Paused = true }},
		{"Waiting (maxUnavailable 0)", "WaitingForPods", []string{"ImagePullBackOff", "MaxUnavailableZero"}, func(in *Input) {
			in.Set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(0))
		}},
		{"Waiting (maxUnavailable 0)", "WaitingForPods", []string{"ImagePullBackOff", "MaxUnavailableZero"}, func(in *Input) {
			in.Set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromString("00%"))
		}},
		{"nothing to do: no pod matches", "RolloutComplete", []string{"ImagePullBackOff", "NoPods"}, func(in *Input) {
			in.Pods, in.Set.Status.MatchedPods, in.Set.Status.UpdatedPods = nil, 0, 0
		}},
		{"Pending", "RolloutComplete", []string{"ImagePullBackOff", "NotObserved"}, func(in *Input) { in.Set.Generation++ }},
		{"NotUpdate", "NotUpdate", []string{"ImagePullBackOff"}, func(in *Input) {
			in.Set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
		}},
		{"Progressing", "WaitingForPods", []string{"ImagePullBackOff"}, func(in *Input) {
			// Pods with an upgrade in progress use the other slots.
			in.Set.Status.Conditions = append(in.Set.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionStalled, Status: "False", Reason: "AsExpected"})
		}},
		{"Stalled (NotUpgradablePods)", "NotUpgradablePods", []string{"ImagePullBackOff"}, func(in *Input) { in.Pods = in.Pods[4:5] }},
	} {
		in := input(t)
		in.Set.Status.Conditions[0].Reason = c.reason
		c.change(in)
		r, err := NewRollout(in)
		require.NoError(t, err)
		assert.Equal(t, c.want, r.Headline, "status: %s", c.reason)
		one := NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Now: noon})[0]
		assert.Equal(t, c.want, one.Headline, "list: %s", c.reason)
		assert.Equal(t, c.attention, one.Attention, c.want)
	}
}

func TestMoreUnavailablePodsThanSlotsAreNoFraction(t *testing.T) {
	in := input(t)
	in.Set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(1))
	r, err := NewRollout(in)
	require.NoError(t, err)
	assert.Contains(t, r.Text(Style{Now: noon}), "Slots:     1 of 1 used (maxUnavailable 1), 1 more unavailable\n")
	assert.Contains(t, r.Message, "2 unavailable, more than the 1 allowed")
}

func TestAnInvalidSidecarSetIsListedAsStalled(t *testing.T) {
	set, _ := logs(t)
	set.Generation = 3
	set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: "False", Reason: v1alpha1.ReasonInvalid}}
	one := NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*set}, Now: noon})[0]
	assert.Equal(t, "Stalled (Invalid)", one.Headline)
}

func TestAPauseBySpecIsNamed(t *testing.T) {
	in := input(t)
	in.Set.Spec.UpdateStrategy.Paused = true
	r, err := NewRollout(in)
	require.NoError(t, err)
	assert.Contains(t, r.Text(Style{Now: noon}), "Paused:    by spec.updateStrategy.paused\n")
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2")}
	r, err = NewRollout(in)
	require.NoError(t, err)
	assert.Equal(t, "Complete", r.Headline)
}

func TestARolloutWhosePodsDoNotBecomeReadyNeedsAttention(t *testing.T) {
	for name, c := range map[string]struct {
		want   []string
		change func(*v1alpha1.SidecarSet)
	}{
		"no change for six minutes": {[]string{"NoProgress"}, func(*v1alpha1.SidecarSet) {}},
		"a change a minute ago": {nil, func(s *v1alpha1.SidecarSet) {
			s.ManagedFields = append(s.ManagedFields, metav1.ManagedFieldsEntry{Subresource: "status", Time: new(ago(time.Minute))})
		}},
		"only the spec is old": {nil, func(s *v1alpha1.SidecarSet) { s.ManagedFields[0].Subresource = "" }},
		"complete": {nil, func(s *v1alpha1.SidecarSet) {
			s.Status.Conditions[0].Reason, s.Status.UpdatedReadyPods = v1alpha1.ReasonRolloutComplete, s.Status.UpdatedPods
		}},
		"paused": {[]string{"Paused"}, func(s *v1alpha1.SidecarSet) { s.Status.Conditions[0].Reason = v1alpha1.ReasonPaused }},
		"no slots": {[]string{"MaxUnavailableZero"}, func(s *v1alpha1.SidecarSet) {
			s.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(0))
		}},
		"not observed": {[]string{"NotObserved"}, func(s *v1alpha1.SidecarSet) { s.Generation++ }},
	} {
		set, _ := logs(t)
		set.Status.Conditions = set.Status.Conditions[:1]
		set.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "status", Time: new(ago(6 * time.Minute))}}
		c.change(set)
		assert.Equal(t, c.want, NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*set}, Now: noon})[0].Attention, name)
	}
}

func TestSpec11_7_5_AListShowsWhatFreezesARollout(t *testing.T) {
	const message = "frozen by RolloutFreeze incident: incident 42; 2 of 5 pods updated"
	for _, c := range []struct {
		want, reason string
		change       func(*v1alpha1.SidecarSet)
	}{
		{"Frozen", v1alpha1.ReasonFrozen, func(*v1alpha1.SidecarSet) {}},
		{"Frozen", v1alpha1.ReasonOutsideWindow, func(*v1alpha1.SidecarSet) {}},
		{"Frozen", v1alpha1.ReasonFrozen, func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(0)) }},
		{"Paused", v1alpha1.ReasonPaused, func(s *v1alpha1.SidecarSet) {
			s.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
		}},
	} {
		set, _ := logs(t)
		set.Status.Conditions[0].Reason, set.Status.Conditions[0].Message = c.reason, message
		c.change(set)
		all := NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*set}, Now: noon})
		assert.Equal(t, c.want, all[0].Headline, c.reason)
		assert.Contains(t, all.Text(Style{Now: noon, Wide: true}), message, c.reason)
		assert.NotContains(t, all.Text(Style{Now: noon}), message, c.reason)
	}
}

func TestAListNamesRunsThatDoNotRespond(t *testing.T) {
	silent := map[string]RunInput{"logs": {NotResponding: true}}
	set, _ := logs(t)
	set.Status.Conditions = set.Status.Conditions[:1]
	one := NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*set}, Runs: silent, Now: noon})[0]
	assert.Equal(t, "Waiting (the run does not respond)", one.Headline)
	assert.Equal(t, []string{"RunNotResponding"}, one.Attention)
	set.Status.Conditions[0].Reason = v1alpha1.ReasonWorkerUnavailable
	one = NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*set}, Runs: silent, Now: noon})[0]
	assert.Equal(t, "Waiting (WorkerUnavailable)", one.Headline, "the operator knows more")
	set.Status.Conditions[0].Reason = v1alpha1.ReasonRolloutComplete
	one = NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*set}, Runs: silent, Now: noon})[0]
	assert.NotContains(t, one.Attention, "RunNotResponding")
}

func TestAListNamesATemporalThatDoesNotAnswer(t *testing.T) {
	set, _ := logs(t)
	list := func(reason string) Summary {
		set.Status.Conditions[0].Reason = reason
		return NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*set}, Runs: map[string]RunInput{"logs": {Unreachable: true, Unknown: "Temporal at t:7233: connection refused"}}, Now: noon})[0]
	}
	one := list(v1alpha1.ReasonWaitingForPods)
	assert.Equal(t, "Stalled (ImagePullBackOff)", one.Headline, "the pods do not wait for Temporal")
	assert.Equal(t, []string{"ImagePullBackOff", "TemporalNotResponding"}, one.Attention)
	set.Status.Conditions = set.Status.Conditions[:1]
	one = list(v1alpha1.ReasonWaitingForPods)
	assert.Equal(t, "Progressing (Temporal does not respond to this command)", one.Headline)
	assert.Equal(t, []string{"TemporalNotResponding"}, one.Attention)
	assert.Equal(t, 1, strings.Count(Summaries{one, one}.Text(Style{Now: noon}), "\nlogs: this command cannot read the run: Temporal at t:7233: connection refused\n"))
	one = list(v1alpha1.ReasonTemporalUnavailable)
	assert.Equal(t, "Waiting ("+v1alpha1.ReasonTemporalUnavailable+")", one.Headline, "the operator knows more")
	assert.NotContains(t, one.Attention, "TemporalNotResponding")
	assert.NotContains(t, list(v1alpha1.ReasonRolloutComplete).Attention, "TemporalNotResponding")
	assert.Equal(t, "Frozen", list(v1alpha1.ReasonFrozen).Headline)
}

func TestSpec8_0_8_AListShowsAPauseThatStatusDoesNotShowYet(t *testing.T) {
	set, _ := logs(t)
	set.Status.Conditions = set.Status.Conditions[:1]
	list := func(pause *protocol.Pause) Summary {
		runs := map[string]RunInput{"logs": {Status: &protocol.RolloutStatus{Generation: 2, Pause: pause}}}
		return NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*set}, Runs: runs, Now: noon})[0]
	}
	assert.Equal(t, "Progressing", list(nil).Headline)
	one := list(&protocol.Pause{By: "ann"})
	assert.Equal(t, "Paused", one.Headline)
	assert.Equal(t, []string{"Paused"}, one.Attention)
	assert.Equal(t, "ann", one.Pause.By)

	set.Status.Conditions[0].Reason, set.Status.Rollout = v1alpha1.ReasonPaused, &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
	one = list(nil)
	assert.Equal(t, "Progressing", one.Headline, "the run was resumed")
	assert.Empty(t, one.Attention)
	set.Spec.UpdateStrategy.Paused = true
	assert.Equal(t, "Paused", list(nil).Headline)
}
