package view

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
)

func ownedBy(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.UID, p.Spec.RestartPolicy = types.UID(p.Name), corev1.RestartPolicyAlways
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
		if kind == "" {
			p.OwnerReferences = nil
		}
	}
}

func readiness(status corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	}
}

func withoutSidecars(p *corev1.Pod) {
	p.Annotations = nil
	p.Spec.Containers = p.Spec.Containers[:1]
}

func never(p *corev1.Pod) {
	otherContent(p)
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
}

func otherContent(p *corev1.Pod) { delete(p.Annotations, v1alpha1.HashWithoutImageAnnotation) }

// restartInput returns an Input with pods of a StatefulSet and other pods. The command restart treats each of
// these pods differently.
func restartInput(t *testing.T) *Input {
	t.Helper()
	in := input(t)
	in.NamespaceLabels = func(namespace string) (map[string]string, error) {
		if namespace == "disabled" {
			return map[string]string{v1alpha1.InjectionLabel: v1alpha1.InjectionDisabled}, nil
		}
		return nil, nil
	}
	in.Webhook.Installed = &admissionv1.MutatingWebhook{Rules: make([]admissionv1.RuleWithOperations, 1), ObjectSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "sidecars", Operator: "NotIn", Values: []string{"no"}}},
	}}
	in.Pods = nil
	newest := func(p *corev1.Pod) {
		p.Spec.Containers[1].Image, p.Status.ContainerStatuses[1].Image = "agent:v2", "agent:v2"
		recordVersion(t, p, logsOf("agent:v2"))
	}
	for name, c := range map[string]struct {
		kind   string
		change func(*corev1.Pod)
	}{
		"db-0": {"StatefulSet", withoutSidecars}, "db-1": {"StatefulSet", otherContent}, "db-2": {"StatefulSet", damaged},
		"db-3": {"StatefulSet", newest}, "bare": {"", withoutSidecars}, "job-1": {"Job", never}, "workflow-1": {"Workflow", never},
		"disabled": {"StatefulSet", func(p *corev1.Pod) { otherContent(p); p.Namespace = "disabled" }},
		"left-out": {"DaemonSet", func(p *corev1.Pod) { damaged(p); p.Labels["sidecars"] = "no" }},
	} {
		in.Pods = append(in.Pods, pod(t, name, "agent:v1", ownedBy(c.kind, "db"), readiness(corev1.ConditionTrue), c.change))
	}
	return in
}

func TestARestartEvictsOnlyPodsThatAreRecreatedWithTheNewestVersion(t *testing.T) {
	r, err := NewRestart(restartInput(t))
	require.NoError(t, err)
	golden(t, "restart", r.Text)
	r.Evict = nil
	golden(t, "restart-nothing", r.Text)
}

func TestARestartIsRejectedIfRecreatedPodsWouldNotGetTheNewestVersion(t *testing.T) {
	for want, change := range map[string]func(*Input){
		"SidecarSet logs: it is being deleted":                   func(in *Input) { in.Set.DeletionTimestamp = new(metav1.Now()) },
		"SidecarSet logs: spec.injectionStrategy.paused is true": func(in *Input) { in.Set.Spec.InjectionStrategy.Paused = true },
		"SidecarSet logs: spec.injectionStrategy.revision is set": func(in *Input) {
			in.Set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: new("logs-1")}
		},
		"the content is quarantined: recreated pods would get the revision of the rollback (kubectl sidecarset retry logs)": func(in *Input) {
			in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Quarantine: &v1alpha1.RolloutQuarantine{Hash: in.Set.Annotations[v1alpha1.HashAnnotation]}}
		},
		"the rollout waits for a permit of the fleet: recreated pods would get the former content (kubectl sidecarset permit logs --reason TEXT)": func(in *Input) {
			in.Set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Revision: "logs-1", Hash: "former", ResourceVersion: "1"}}
			in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: "False", Reason: v1alpha1.ReasonAwaitingPermit, ObservedGeneration: in.Set.Generation}}
		},
		"the webhook of pods is not installed, is not activated, or does not respond": func(in *Input) { in.Webhook.Absent = true },
		"or does not respond: recreated":                                              func(in *Input) { in.Webhook.Installed = &admissionv1.MutatingWebhook{} },
		"match conditions of the webhook of pods (ours) may leave out recreated pods": func(in *Input) {
			scope, _ := match.NewScope(&in.Set.Spec)
			followed := admissionv1.MatchCondition{Name: match.ConditionName, Expression: match.NewCondition(scope).Expression()}
			in.Webhook.Installed.MatchConditions = []admissionv1.MatchCondition{match.CriticalCondition(), followed, {Name: "ours"}}
		},
		"SidecarSet logs: spec.updateStrategy.paused is true (kubectl sidecarset resume logs)": func(in *Input) { in.Set.Spec.UpdateStrategy.Paused = true },
		"SidecarSet logs: the run is paused by ann: errors (kubectl sidecarset resume logs)": func(in *Input) {
			in.Set.Status.Rollout = &v1alpha1.RolloutStatus{Pause: &v1alpha1.RolloutPause{By: "ann", Reason: "errors"}}
		},
		"SidecarSet logs: the rollout is in progress, and may also make maxUnavailable pods unready: repeat the restart after kubectl sidecarset status logs -w": func(in *Input) {
			in.Pods = append(in.Pods, pod(t, "old", "agent:v1"))
		},
		"(kubectl sidecarset check)": func(in *Input) {
			in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionInjected, Status: "False", Reason: v1alpha1.ReasonWebhookUnavailable}}
		},
		`maxUnavailable of SidecarSet logs is 0: no pod may be evicted (kubectl patch sidecarset logs`: func(in *Input) {
			in.Set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(0))
		},
	} {
		in := restartInput(t)
		change(in)
		_, err := NewRestart(in)
		require.ErrorContains(t, err, want)
	}
}

func TestAPercentageCountsThePodsWithoutSidecars(t *testing.T) {
	in := restartInput(t)
	for _, pod := range in.Pods {
		withoutSidecars(pod)
	}
	in.Set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromString("50%"))
	r, err := NewRestart(in)
	require.NoError(t, err)
	assert.Equal(t, len(in.Pods)/2, r.slots)
}

func TestAnOwnerUsesSlotsUntilItHasItsReadyPodsAgain(t *testing.T) {
	in := restartInput(t)
	start, err := NewRestart(in)
	require.NoError(t, err)
	e := NewEvictions(start)
	next := func() (names []string, open int, waiting string) {
		now, err := NewRestart(in)
		require.NoError(t, err)
		left, open := e.Next(now)
		for _, pod := range left {
			names = append(names, pod.Name)
		}
		return names, open, e.Waiting(now)
	}
	names, open, waiting := next()
	assert.Equal(t, []string{"db-0", "db-1", "db-2"}, names)
	assert.Equal(t, 2, open)
	assert.Empty(t, waiting)

	evicted := find(t, in, "db-0")
	e.Evicted(start, &start.Evict[0])
	evicted.DeletionTimestamp = new(metav1.Now())
	names, open, waiting = next()
	assert.Equal(t, []string{"db-1", "db-2"}, names)
	assert.Equal(t, 1, open)
	assert.Equal(t, "statefulset/db in default has 3 of 4 ready pods", waiting)

	// The replacement also lacks the sidecars, but is not evicted.
	evicted.DeletionTimestamp, evicted.UID = nil, "again"
	readiness(corev1.ConditionFalse)(evicted)
	names, open, _ = next()
	assert.Equal(t, []string{"db-1", "db-2"}, names)
	assert.Equal(t, 1, open, "it is not ready")
	readiness(corev1.ConditionTrue)(evicted)
	_, open, waiting = next()
	assert.Equal(t, 2, open)
	assert.Empty(t, waiting)
	assert.Equal(t, 1, e.Done)
}

func TestAnOwnerUsesNoMoreSlotsThanItsEvictions(t *testing.T) {
	in := restartInput(t)
	start, err := NewRestart(in)
	require.NoError(t, err)
	e := NewEvictions(start)
	e.Evicted(start, &start.Evict[0])
	assert.Equal(t, "statefulset/db in default has 3 of 4 ready pods", e.Waiting(start), "before the next read")
	for _, pod := range in.Pods {
		readiness(corev1.ConditionFalse)(pod)
	}
	now, err := NewRestart(in)
	require.NoError(t, err)
	_, open := e.Next(now)
	assert.Equal(t, 1, open, "three pods are not ready for other reasons")
}

func TestAnOwnerThatIsScaledDownWaitsForFewerPods(t *testing.T) {
	in := restartInput(t)
	start, err := NewRestart(in)
	require.NoError(t, err)
	e := NewEvictions(start)
	e.Evicted(start, &start.Evict[0])
	find(t, in, "db-0").DeletionTimestamp = new(metav1.Now())
	now, err := NewRestart(in)
	require.NoError(t, err)
	for _, owner := range e.Owners() {
		e.Limit(owner, 3)
	}
	_, open := e.Next(now)
	assert.Equal(t, 2, open)
	assert.Empty(t, e.Waiting(now))
}

func find(t *testing.T, in *Input, name string) *corev1.Pod {
	t.Helper()
	for _, pod := range in.Pods {
		if pod.Name == name {
			return pod
		}
	}
	t.Fatalf("no pod %s", name)
	return nil
}

func TestTheCauseOfAPodThatIsBehindHasNoCommandToRecreateIt(t *testing.T) {
	in := input(t)
	owned := pod(t, "web-5d6-a", "agent:v1")
	for reason, want := range map[string]string{
		"it is old" + recreate(owned, "logs"):                       "it is old",
		"it is old (kubectl sidecarset check)":                      "it is old (kubectl sidecarset check)",
		"it is old (kubectl get pods; a)" + recreate(owned, "logs"): "it is old (kubectl get pods; a)",
	} {
		behind := in.behind(owned, PodMissing, reason)
		assert.Equal(t, want, behind.Cause())
	}
	assert.NotEmpty(t, recreate(owned, "logs"))
}
