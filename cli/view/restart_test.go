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
)

func ownedBy(kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.UID = types.UID(p.Name)
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

func otherContent(p *corev1.Pod) { delete(p.Annotations, v1alpha1.HashWithoutImageAnnotation) }

// restartInput has pods of a StatefulSet and others, of which each needs another treatment.
func restartInput(t *testing.T) *Input {
	t.Helper()
	in := input(t)
	in.NamespaceLabels = func(string) (map[string]string, error) { return nil, nil }
	in.Pods = nil
	for name, c := range map[string]struct {
		kind   string
		change func(*corev1.Pod)
	}{
		"db-0": {"StatefulSet", withoutSidecars}, "db-1": {"StatefulSet", otherContent}, "db-2": {"StatefulSet", damaged},
		"db-3": {"StatefulSet", func(*corev1.Pod) {}}, "bare": {"", withoutSidecars}, "job-1": {"Job", otherContent},
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
		"the webhook of pods does not answer":            func(in *Input) { in.Webhook.Absent = true },
		"the webhook of pods does not answer: recreated": func(in *Input) { in.Webhook.Installed = &admissionv1.MutatingWebhook{} },
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
	assert.Equal(t, 3, r.slots)
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

	// The replacement lacks the sidecars again, and is not evicted again.
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
