package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

func budgeted(name string, state podstate.State, changes ...func(*corev1.Pod)) Pod {
	pod := newPod(name, state, append([]func(*corev1.Pod){labelled("app", "web")}, changes...)...)
	asServed(&pod)
	for _, change := range changes {
		change(pod.Pod)
	}
	return pod
}

// web returns a PodDisruptionBudget that allows one unavailable pod of four.
func web(change func(*policyv1.PodDisruptionBudget)) policyv1.PodDisruptionBudget {
	budget := policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web", Generation: 2}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	budget.Spec.MaxUnavailable = new(intstr.FromInt32(1))
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, ExpectedPods: 4, CurrentHealthy: 4, DesiredHealthy: 3, DisruptionsAllowed: 1}
	if change != nil {
		change(&budget)
	}
	return budget
}

func respectsBudgets() *protocol.Stage {
	return &protocol.Stage{Policy: "p", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("100%"), RespectBudgets: true}}
}

func planWithBudgets(t *testing.T, pods []Pod, others []Pod, budgets ...policyv1.PodDisruptionBudget) Plan {
	t.Helper()
	var served []*corev1.Pod
	for _, list := range [][]Pod{pods, others} {
		for i := range list {
			served = append(served, list[i].Pod)
		}
	}
	cluster := Cluster{Budgets: NewBudgets(budgets, map[string][]*corev1.Pod{"d": served})}
	plan, err := NextInCluster(unavailable(intstr.FromInt32(9)), pods, nil, respectsBudgets(), cluster)
	require.NoError(t, err)
	return plan
}

// pendingUpgrade adds the record of an upgrade that the kubelet has not observed.
func pendingUpgrade(pod *corev1.Pod) {
	pod.Annotations = map[string]string{v1alpha1.InPlaceUpdateStateAnnotation: `{"other":{"lastContainerStatuses":{"side":{"imageID":"id-1","restartCount":0}}}}`}
	pod.Spec.Containers = []corev1.Container{{Name: "side", Image: "side:v2"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "side", Image: "side:v1", ImageID: "id-1", Ready: true}}
}

// pendingResize adds a resize by another SidecarSet to a pod. The resize restarts a container, and the kubelet
// has not observed the resize.
func pendingResize(pod *corev1.Pod) {
	pod.Annotations = map[string]string{
		v1alpha1.ResizeAnnotation: `{"other":"hash"}`,
		v1alpha1.HashAnnotation:   `{"other":{"hash":"hash","sidecarSetName":"other","sidecarList":["proxy"]}}`,
	}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "proxy", ResizePolicy: []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}})
	pod.Generation, pod.Status.ObservedGeneration = 2, 1
}

// resizePending adds the condition of a resize that the kubelet has not begun.
func resizePending(reason string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason})
	}
}

func TestSpec11_11_BudgetsAllowAnUpgrade(t *testing.T) {
	four := func(states ...podstate.State) []Pod {
		var pods []Pod
		for i, state := range states {
			pods = append(pods, budgeted(string(rune('a'+i)), state))
		}
		return pods
	}
	for name, c := range map[string]struct {
		pods, others []Pod
		change       func(*policyv1.PodDisruptionBudget)
		chosen       []string
	}{
		"one at a time":                         {four(old, old, old, old), nil, nil, []string{"a"}},
		"none while a pod is not ready":         {four(old, old, old, restart), nil, nil, []string{}},
		"a pod that is not ready needs no slot": {four(old, old, old, oldDown), nil, nil, []string{"d*"}},
		"a pod of no SidecarSet counts":         {four(old, old, old), []Pod{budgeted("x", oldDown)}, nil, []string{}},
		"an upgrade of another SidecarSet that the kubelet has not observed counts": {four(old, old, old), []Pod{budgeted("x", old, pendingUpgrade)}, nil, []string{}},
		"a resize by another SidecarSet that restarts a container counts":           {four(old, old, old), []Pod{budgeted("x", old, pendingResize)}, nil, []string{}},
		"a pod with such a resize also needs a slot":                                {[]Pod{budgeted("a", old, pendingResize), budgeted("b", old)}, nil, nil, []string{}},
		"an infeasible resize by another SidecarSet restarts nothing":               {four(old, old, old), []Pod{budgeted("x", old, pendingResize, resizePending(corev1.PodReasonInfeasible))}, nil, []string{"a"}},
		"a deferred resize by another SidecarSet may restart a container later":     {four(old, old, old), []Pod{budgeted("x", old, pendingResize, resizePending(corev1.PodReasonDeferred))}, nil, []string{}},
		"the status knows an unhealthy pod that the cache does not show": {four(old, old, old, old), nil, func(b *policyv1.PodDisruptionBudget) {
			b.Status.CurrentHealthy, b.Status.DisruptionsAllowed = 3, 0
		}, []string{}},
		"the status expects a pod that is not created yet": {four(old, old, old), nil, nil, []string{}},
		"the status does not know that the workload was scaled": {append(four(old, old, old), budgeted("x", oldDown)), nil, func(b *policyv1.PodDisruptionBudget) {
			b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, ExpectedPods: 3, CurrentHealthy: 3, DesiredHealthy: 2, DisruptionsAllowed: 1}
		}, []string{"x*"}},
		"a pod is being evicted": {four(old, old, old, old), nil, func(b *policyv1.PodDisruptionBudget) {
			b.Status.DisruptedPods, b.Status.DisruptionsAllowed = map[string]metav1.Time{"d": {}}, 0
		}, []string{}},
		"the status is older than the spec": {four(old, old, old, old), nil, func(b *policyv1.PodDisruptionBudget) { b.Generation = 3 }, []string{}},
		"the selector is invalid": {four(old, old, old, old), nil, func(b *policyv1.PodDisruptionBudget) {
			b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}
		}, []string{}},
		"the budget selects no pod":          {four(old, old, old, old), nil, func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil }, []string{"a", "b", "c", "d"}},
		"the budget is of another namespace": {four(old, old, old, old), nil, func(b *policyv1.PodDisruptionBudget) { b.Namespace = "e" }, []string{"a", "b", "c", "d"}},
		"minAvailable": {four(old, old, old, old), nil, func(b *policyv1.PodDisruptionBudget) {
			b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, new(intstr.FromString("50%"))
			b.Status.DesiredHealthy, b.Status.DisruptionsAllowed = 2, 2
		}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planWithBudgets(t, c.pods, c.others, web(c.change))
			assert.Equal(t, c.chosen, chosen(plan))
		})
	}
}

func TestSpec11_11_ThePlanNamesTheBudgetThatItWaitsFor(t *testing.T) {
	pods := []Pod{budgeted("a", old), budgeted("b", old), budgeted("c", old), budgeted("d", restart)}
	assert.Contains(t, planWithBudgets(t, pods, nil, web(nil)).Message, "; d/a waits for PodDisruptionBudget d/web (3 healthy, 3 needed)")
	invalid := web(func(b *policyv1.PodDisruptionBudget) { b.Generation++ })
	assert.Contains(t, planWithBudgets(t, pods, nil, invalid).Message, "; d/a waits for PodDisruptionBudget d/web (its status is out of date)")
}

func TestSpec11_11_APlanAwaitsABudgetBehindAnotherLimit(t *testing.T) {
	full := web(func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy, b.Status.DisruptionsAllowed = 3, 0 })
	pods := []Pod{owned("a", "x", restart), owned("b", "x", old), budgeted("c", old)}
	current := onePerOwner(intstr.FromString("100%"))
	current.Step.RespectBudgets = true
	cluster := Cluster{Budgets: NewBudgets([]policyv1.PodDisruptionBudget{full}, map[string][]*corev1.Pod{"d": {pods[2].Pod}})}
	plan, err := NextInCluster(unavailable(intstr.FromInt32(9)), pods, nil, current, cluster)
	require.NoError(t, err)
	assert.Contains(t, plan.Message, "; d/b waits for ", "the owner of this pod has no slot")
	assert.True(t, plan.AwaitsBudget)
}

func TestSpec11_11_ARefillCountsTheWritesOfTheBatch(t *testing.T) {
	pods := []Pod{budgeted("a", old), budgeted("b", old), budgeted("c", old), budgeted("d", old)}
	plan := planWithBudgets(t, pods, nil, web(nil))
	left := []protocol.SelectedPod{{PodReference: pods[1].Reference()}}
	assert.Empty(t, plan.Refill(left, map[protocol.PodReference]bool{pods[0].Reference(): true}, 1).Now)
	assert.Len(t, plan.Refill(left, map[protocol.PodReference]bool{pods[0].Reference(): false}, 0).Now, 1, "a was not written")
}
