package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

func TestEachAnswerOfWhyHasACommand(t *testing.T) {
	for want, change := range map[string]func(*Input){
		"recreate them: kubectl sidecarset restart logs":                      func(*Input) {},
		"spec.updateStrategy.paused is true (kubectl sidecarset resume logs)": func(in *Input) { in.Set.Spec.UpdateStrategy.Paused = true },
		"kubectl sidecarset resume logs": func(in *Input) {
			in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
		},
		`-p '{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}'`: func(in *Input) {
			in.Set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
		},
		`-p '{"spec":{"updateStrategy":{"maxUnavailable":1}}}'`: func(in *Input) {
			in.Set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(0))
		},
		`-p '{"spec":{"updateStrategy":{"partition":0}}}'`: func(in *Input) {
			in.Pods = []*corev1.Pod{in.Pods[0], in.Pods[3]}
			in.Set.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(1))
		},
		`-p '{"spec":{"updateStrategy":{"selector":null}}}'`: func(in *Input) {
			in.Pods = []*corev1.Pod{in.Pods[0], in.Pods[3]}
			in.Set.Spec.UpdateStrategy.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "true"}}
		},
		"to go back: kubectl sidecarset undo logs":  func(*Input) {},
		"kubectl describe pod web-5d6-b -n default": func(*Input) {},
		"kubectl get pods -A -l 'app=web'":          func(in *Input) { in.Pods = nil },
		"namespace nope of the SidecarSet does not exist (kubectl edit sidecarset logs)": func(in *Input) {
			in.Pods, in.Set.Spec.Namespace, in.NamespaceLabels = nil, "nope", noNamespace
		},
		"kubectl sidecarset status logs --watch": func(in *Input) { in.Pods = in.Pods[3:4]; in.Set.Status.Conditions = nil },
		"kubectl sidecarset history logs":        func(in *Input) { in.Pods = in.Pods[:1] },
		"WorkerUnavailable: m; the rollout continues by itself after the outage (kubectl sidecarset check)": func(in *Input) {
			in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: v1alpha1.ReasonWorkerUnavailable, Message: "m"}}
		},
	} {
		in := input(t)
		change(in)
		why, err := NewRolloutWhy(in)
		require.NoError(t, err)
		assert.Contains(t, why.Text(Style{Now: noon}), want)
	}
}

// noNamespace returns the error of an API server for a namespace that does not exist.
func noNamespace(name string) (map[string]string, error) {
	return nil, fmt.Errorf("get namespace: %w", apierrors.NewNotFound(corev1.Resource("namespaces"), name))
}

func TestStatusNamesTheNextCommand(t *testing.T) {
	set := func(reason string) func(*Input) {
		return func(in *Input) { in.Set.Status.Conditions[0].Reason = reason }
	}
	quiet := func(in *Input, pods ...*corev1.Pod) { in.Pods, in.Set.Status.Conditions = pods, nil }
	degraded := func(in *Input) {
		in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDegraded, Status: "True", Reason: "ImagePullBackOff"}}
	}
	without := func(in *Input) {
		in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionInjected, Status: "False", Reason: v1alpha1.ReasonPodsWithoutSidecar, Message: "9 pods match but were not injected"}}
	}
	webhook := func(in *Input) {
		in.Set.Status.Conditions = append(in.Set.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionInjected, Status: "False", Reason: v1alpha1.ReasonWebhookUnavailable})
	}
	for _, c := range []struct {
		want   string
		change func(*Input)
	}{
		{"go back: kubectl sidecarset undo logs; kubectl sidecarset why logs", func(*Input) {}},
		{"kubectl sidecarset why logs; go back: kubectl sidecarset undo logs", func(in *Input) { quiet(in, pod(t, "a", "agent:v2", written(t, 2*time.Minute, ""))) }},
		{"kubectl sidecarset why logs", func(in *Input) { quiet(in, pod(t, "a", "agent:v2", written(t, 20*time.Second, ""))) }},
		{"kubectl delete pods -n default --field-selector spec.nodeName=node-3 --force; kubectl sidecarset why logs", func(in *Input) {
			quiet(in, pod(t, "a", "agent:v2", written(t, 2*time.Minute, ""), on("node-3")))
			in.Nodes = nodes(new([]string))
		}},
		{"kubectl sidecarset why logs; recreate the pods: kubectl sidecarset restart logs", func(in *Input) { quiet(in, pod(t, "a", "agent:v1", notUpgradable)) }},
		{`go back: kubectl sidecarset undo logs; kubectl sidecarset resume logs; kubectl sidecarset why logs`, func(in *Input) { in.Set.Spec.UpdateStrategy.Paused = true }},
		{"kubectl sidecarset check; go back: kubectl sidecarset undo logs; kubectl sidecarset why logs", func(in *Input) { webhook(in) }},
		{"kubectl sidecarset check", func(in *Input) { quiet(in, pod(t, "a", "agent:v2")); webhook(in) }},
		{"kubectl sidecarset check", func(in *Input) {
			quiet(in, pod(t, "a", "agent:v2"))
			in.Run = RunInput{Unknown: "connection refused", Unreachable: true}
		}},
		{"kubectl sidecarset check", func(in *Input) { quiet(in, pod(t, "a", "agent:v1")); in.Run.Unknown = "namespace x does not exist" }},
		{"go back: kubectl sidecarset undo logs; kubectl sidecarset resume logs", func(in *Input) {
			in.Pods = in.Pods[1:4]
			in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann"}}
		}},
		{"kubectl sidecarset check", func(in *Input) { in.Pods, in.Set.Generation = in.Pods[1:4], 3 }},
		{"kubectl sidecarset check", func(in *Input) { in.Pods, in.Run = in.Pods[1:4], RunInput{Unknown: "u", NotResponding: true} }},
		{"kubectl sidecarset check", func(in *Input) { in.Pods, in.Run = in.Pods[1:4], RunInput{Unknown: "u", Unreachable: true} }},
		{"kubectl sidecarset check; kubectl sidecarset why logs", set(v1alpha1.ReasonWorkerUnavailable)},
		{"kubectl sidecarset open logs; kubectl sidecarset why logs", set(v1alpha1.ReasonRolloutFailing)},
		{"kubectl edit rolloutpolicy p1; kubectl sidecarset why logs", func(in *Input) {
			set(v1alpha1.ReasonRolloutFailing)(in)
			in.Set.Status.Conditions[0].Message = "fails: RolloutPolicy p1: windows[0]: timeZone: unknown time zone Mars/X"
		}},
		{"kubectl edit sidecarset logs; kubectl sidecarset why logs", set(v1alpha1.ReasonInvalid)},
		{"kubectl sidecarset list --missing; recreate the pods: kubectl sidecarset restart logs", func(in *Input) { in.Pods = nil; without(in) }},
		{"kubectl get pods -A -l 'app=web'; kubectl edit sidecarset logs", func(in *Input) { quiet(in) }},
		{"kubectl get pods -n shop -l 'app=web'; kubectl edit sidecarset logs", func(in *Input) { quiet(in); in.Set.Spec.Namespace = "shop" }},
		{"kubectl get pods -A -l 'app=web'; kubectl get namespaces -l 'team=a'; kubectl edit sidecarset logs", func(in *Input) {
			quiet(in)
			in.Set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
		}},
		{"namespace nope of the SidecarSet does not exist: kubectl edit sidecarset logs", func(in *Input) {
			quiet(in)
			in.Set.Spec.Namespace, in.NamespaceLabels = "nope", noNamespace
		}},
		{"kubectl sidecarset status logs --watch", func(in *Input) { quiet(in, pod(t, "a", "agent:v1"), pod(t, "b", "agent:v2")); degraded(in) }},
		{"kubectl sidecarset why logs", func(in *Input) { quiet(in, pod(t, "a", "agent:v2")); degraded(in) }},
		{"", func(in *Input) { quiet(in, pod(t, "a", "agent:v2")) }},
		{"", func(in *Input) { quiet(in, pod(t, "a", "agent:v1")) }},
	} {
		in := input(t)
		c.change(in)
		r, err := NewRollout(in)
		require.NoError(t, err)
		text := r.Text(Style{Now: noon})
		if c.want == "" {
			assert.NotContains(t, text, "Next:")
			continue
		}
		assert.Contains(t, text, "\nNext:      "+c.want+"\n")
	}
}

func TestARunThatDoesNotRespondIsNamedAtOnce(t *testing.T) {
	in := input(t)
	in.Run = RunInput{Unknown: protocol.NoAnswer, NotResponding: true}
	r, err := NewRollout(in)
	require.NoError(t, err)
	golden(t, "rollout-not-responding", r.Text)
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	golden(t, "why-not-responding", why.Text)

	in.Pods = in.Pods[:1]
	r, err = NewRollout(in)
	require.NoError(t, err)
	assert.Equal(t, "Complete", r.Headline, "nothing is left for the run")
}

func TestAPauseHasItsDurationIfTheRunKnowsIt(t *testing.T) {
	in := input(t)
	in.Set.Status.Conditions[0] = metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: "False", Reason: v1alpha1.ReasonPaused, LastTransitionTime: ago(5 * time.Second)}
	in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "admin", Reason: "looking, night shift"}}
	in.Set.Spec.UpdateStrategy.Paused = true
	assert.Contains(t, newRollout(t, in).Text(Style{Now: noon}), "Paused:    by spec.updateStrategy.paused\nPaused:    by admin: looking, night shift\n")
	in.Run.Status = &protocol.RolloutStatus{Generation: 2, Pause: &protocol.Pause{By: "admin", Reason: "looking, night shift", At: noon.Add(-192 * time.Minute)}}
	in.Set.Spec.UpdateStrategy.Paused = false
	assert.Contains(t, newRollout(t, in).Text(Style{Now: noon}), "\nPaused:    for 3h12m by admin: looking, night shift\n")
}

func TestPodsWithoutSidecarsAreNoEndOfARollout(t *testing.T) {
	in := input(t)
	in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionInjected, Status: "False", Reason: v1alpha1.ReasonPodsWithoutSidecar, Message: "1 pod matches but was not injected, x"}}
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2"), lacking(t, "b", time.Hour)}
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	assert.Equal(t, []string{"the injected pods are updated; not injected though they match: 1 pod (kubectl sidecarset list --missing); recreate the pods: kubectl sidecarset restart logs"}, why.Reasons)

	in.Set.Status.MatchedPods, in.Pods = 0, in.Pods[1:]
	r, err := NewRollout(in)
	require.NoError(t, err)
	assert.Equal(t, "1 pod matches, but has no sidecar", r.Headline)
	in.Set.Status.Conditions[0].Message = "9 pods match but were not injected, such as x"
	one := NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Now: noon})[0]
	assert.Equal(t, "9 pods match, but have no sidecar", one.Headline)
	assert.Equal(t, []string{"PodsWithoutSidecar"}, one.Attention)
	assert.Equal(t, Bad, headlineTone(one.Headline))
}

func TestTemporalThatDoesNotAnswerIsNamedAtOnce(t *testing.T) {
	in := input(t)
	in.Pods, in.Set.Status.Conditions = in.Pods[1:4], nil
	in.Run = RunInput{Unknown: "Temporal at 127.0.0.1:7233: connection refused", Unreachable: true}
	r, err := NewRollout(in)
	require.NoError(t, err)
	assert.Equal(t, "Progressing (Temporal does not respond to this command)", r.Headline)
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	assert.Equal(t, "Temporal at 127.0.0.1:7233: connection refused; if the worker cannot reach Temporal either, the rollout waits (kubectl sidecarset check)", why.Reasons[0])

	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2")}
	r, err = NewRollout(in)
	require.NoError(t, err)
	assert.Equal(t, "Complete", r.Headline, "a rollout that has ended does not need Temporal")
}

func TestAPodDoesNotLookWrittenBeforeItsRun(t *testing.T) {
	in := input(t)
	// The annotation of a pod contains the time of the upgrade in whole seconds.
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2", written(t, 3*time.Second, ""))}
	in.Run.Status = &protocol.RolloutStatus{Generation: 2, Phase: protocol.PhaseWaiting, Batches: 1, Upgraded: 1, Since: noon.Add(-2500 * time.Millisecond)}
	shown := newRollout(t, in).Text(Style{Now: noon})
	assert.Contains(t, shown, "Run:       generation 2, which began 3s ago, ")
	assert.Contains(t, shown, "Waiting:   default/a, written 3s ago: ")
}

func TestAnOutageOfTheStatusIsNotCurrentOnceTheRunHasAnswered(t *testing.T) {
	in := input(t)
	in.Pods = in.Pods[3:4]
	in.Set.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionProgressing, Status: "False", Reason: v1alpha1.ReasonTemporalUnavailable, Message: "Temporal does not respond"},
		{Type: v1alpha1.ConditionDegraded, Status: "True", Reason: v1alpha1.ReasonTemporalUnavailable, Message: "Temporal does not respond"},
	}
	in.Run.Unknown = "Temporal does not respond"
	assert.Equal(t, "Waiting (EngineUnavailable)", newRollout(t, in).Headline)

	in.Run = RunInput{Status: &protocol.RolloutStatus{Generation: 2, Phase: protocol.PhaseProgressing, Since: noon}}
	r := newRollout(t, in)
	assert.Equal(t, "Progressing", r.Headline)
	assert.Contains(t, r.Text(Style{Now: noon}), "\nDegraded:  EngineUnavailable: Temporal does not respond; the run has answered this command since\n")
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	assert.Equal(t, "EngineUnavailable: Temporal does not respond; the run has answered this command since (kubectl sidecarset check)", why.Reasons[0])
}

func TestTheRunCountsPodsOnlyOnceTheirBatchHasEnded(t *testing.T) {
	r := &Rollout{Run: &Run{Phase: protocol.PhaseProgressing, Generation: 2, Batches: 3, Upgraded: 40, Since: noon}}
	assert.Equal(t, "generation 2, which began 0s ago, batch 3 in progress", r.runLine(Style{Now: noon}))
	r.Run.Phase = protocol.PhaseWaiting
	assert.Equal(t, "generation 2, which began 0s ago, 3 batches, 40 upgrades started", r.runLine(Style{Now: noon}))
}

func TestNoUndoIsProposedForPodsThatWaitForTheContentOfAnUndo(t *testing.T) {
	bad := func(p *corev1.Pod) {
		p.Status.ContainerStatuses[1].Ready, p.Status.ContainerStatuses[1].State.Waiting = false, &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
		unready(p)
	}
	for _, observed := range []int64{1, 2} {
		in := input(t)
		in.Set.Status.ObservedGeneration = observed
		in.Pods = []*corev1.Pod{pod(t, "a", "agent:v1", bad), pod(t, "b", "agent:v2")}
		r := newRollout(t, in)
		assert.NotContains(t, r.next(noon), "go back: kubectl sidecarset undo logs", "the newest content is agent:v2")
		assert.NotContains(t, newWhy(t, in).Text(Style{}), "undo")
		if observed < in.Set.Generation {
			assert.NotContains(t, r.Text(Style{}), "Degraded:", "the condition is about an earlier generation")
		}
	}
}

func TestSpec8_0_9_WhyHasTheCountsOfOnePlan(t *testing.T) {
	in := input(t)
	const outage = "Temporal does not respond"
	old := outage + "; 1 of 6 pods updated"
	in.Set.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionProgressing, Status: "False", Reason: v1alpha1.ReasonTemporalUnavailable, Message: old},
		{Type: v1alpha1.ConditionDegraded, Status: "True", Reason: v1alpha1.ReasonTemporalUnavailable, Message: outage},
		{Type: v1alpha1.ConditionReady, Status: "False", Reason: v1alpha1.ReasonTemporalUnavailable, Message: old},
	}
	shown := newWhy(t, in).Text(Style{Now: noon})
	assert.Contains(t, shown, "  EngineUnavailable: "+outage+"; the rollout continues")
	assert.NotContains(t, shown, "1 of 6 pods updated")
}

// The command restart does not evict a pod without a controller.
func TestNextLeavesOutARestartOfPodsWithoutAController(t *testing.T) {
	for name, bare := range map[string]bool{"controlled": false, "bare": true} {
		in := input(t)
		in.Now = noon
		lacks := pod(t, "later", "agent:v2", func(p *corev1.Pod) { p.Annotations = nil })
		if bare {
			lacks.OwnerReferences = nil
		}
		in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2"), lacks}
		in.Set.Status.Conditions = []metav1.Condition{
			{Type: v1alpha1.ConditionProgressing, Status: "False", Reason: v1alpha1.ReasonRolloutComplete},
			{Type: v1alpha1.ConditionInjected, Status: "False", Reason: v1alpha1.ReasonPodsWithoutSidecar, Message: "1 pod matches and lacks the sidecars"},
		}
		text := newRollout(t, in).Text(Style{Now: noon})
		assert.Contains(t, text, "kubectl sidecarset list --missing", name)
		assert.Equal(t, !bare, strings.Contains(text, "kubectl sidecarset restart logs"), name)
	}
}

func TestAnUndoNamesTheLastGoodRevision(t *testing.T) {
	in := input(t)
	good := in.Revisions[0]
	former, err := revision.New(logsOf("agent:bad"), "kruise-system", 2)
	require.NoError(t, err)
	in.Revisions[1].Revision = 3
	in.Revisions = []*appsv1.ControllerRevision{good, former, in.Revisions[1]}
	hash := in.Set.Annotations[v1alpha1.HashAnnotation]
	plain, named := "kubectl sidecarset undo logs", "kubectl sidecarset undo logs --to-revision "+good.Name
	for name, c := range map[string]struct {
		good []v1alpha1.GoodRevision
		want string
	}{
		"none is good":                    {nil, plain},
		"an earlier one is good":          {[]v1alpha1.GoodRevision{{Revision: good.Name, Hash: "1", ResourceVersion: "7"}}, named},
		"the current one is good, too":    {[]v1alpha1.GoodRevision{{Revision: in.Revisions[2].Name, Hash: hash, ResourceVersion: "9"}, {Revision: good.Name, Hash: "1", ResourceVersion: "7"}}, named},
		"the undo goes there in any case": {[]v1alpha1.GoodRevision{{Revision: former.Name, Hash: "2", ResourceVersion: "7"}}, plain},
		"the good one is not recorded":    {[]v1alpha1.GoodRevision{{Revision: "logs-gone", Hash: "1", ResourceVersion: "7"}}, plain},
	} {
		in.Set.Status.GoodRevisions = c.good
		assert.Contains(t, newRollout(t, in).next(noon), "go back: "+c.want, name)
		assert.Contains(t, newWhy(t, in).Reasons, "to go back: "+c.want, name)
	}
}
