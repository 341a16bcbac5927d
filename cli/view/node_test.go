package view

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func nodeWith(status corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, LastTransitionTime: ago(time.Hour)},
		{Type: corev1.NodeReady, Status: status, LastTransitionTime: ago(77 * time.Second)},
	}}}
}

// nodes returns a reader of four nodes: node-1 is NotReady, node-2 is ready, node-3 does not exist, and
// node-4 cannot be read. read contains the names of the nodes that were read.
func nodes(read *[]string) Nodes {
	return Nodes{Now: noon, Get: func(name string) (*corev1.Node, error) {
		*read = append(*read, name)
		switch name {
		case "node-1":
			return nodeWith(corev1.ConditionUnknown), nil
		case "node-2":
			return nodeWith(corev1.ConditionTrue), nil
		case "node-3":
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
		}
		return nil, errors.New("forbidden")
	}, List: func() (sets.Set[string], error) { return sets.New("node-1", "node-2", "node-4", "node-5"), nil }}
}

func on(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = name }
}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func TestLostNodesOfStuckPodsAreNamed(t *testing.T) {
	in := input(t)
	in.Pods = []*corev1.Pod{
		pod(t, "a", "agent:v2", on("node-4")),
		pod(t, "b", "agent:v2", on("node-1"), written(t, 8*time.Second, "")),
		pod(t, "c", "agent:v2", on("node-2"), unready),
		pod(t, "d", "agent:v2", on("node-3"), unready),
		pod(t, "e", "agent:v2", on("node-4"), unready),
		pod(t, "f", "agent:v2", on(""), unready),
		pod(t, "g", "agent:v1", on("node-5")),
	}
	var read []string
	in.Nodes = nodes(&read)
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	golden(t, "why-lost-nodes", why.Text)
	assert.Equal(t, []string{"node-1", "node-2", "node-3", "node-4"}, read, "the nodes of stuck pods")
	r, err := NewRollout(in)
	require.NoError(t, err)
	assert.Contains(t, r.Text(Style{Now: noon}), "Waiting:   default/b, written 8s ago: agent: still runs agent:v1; its node node-1 is NotReady for 77s: kubectl describe node node-1\n")
}

func TestTheLostNodeOfAPodIsNamed(t *testing.T) {
	set, _ := logs(t)
	for name, one := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"not ready":           {pod(t, "p", "agent:v2", on("node-3"), unready), "its node node-3 does not exist: kubectl delete pods -n default --field-selector spec.nodeName=node-3 --force"},
		"old and not ready":   {pod(t, "p", "agent:v1", on("node-1"), unready), "its node node-1 is NotReady for 77s: kubectl describe node node-1"},
		"last seen ready":     {pod(t, "p", "agent:v2", on("node-3"), written(t, time.Second, ""), func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionTrue }), "its node node-3 does not exist: kubectl delete pods -n default --field-selector spec.nodeName=node-3 --force"},
		"being deleted":       {pod(t, "p", "agent:v1", on("node-3"), unready, func(p *corev1.Pod) { p.DeletionTimestamp = new(ago(time.Minute)) }), "its node node-3 does not exist: kubectl delete pods -n default --field-selector spec.nodeName=node-3 --force"},
		"ready, deleted node": {pod(t, "p", "agent:v2", on("node-3")), "its node node-3 does not exist: kubectl delete pods -n default --field-selector spec.nodeName=node-3 --force"},
		"ready":               {pod(t, "p", "agent:v2", on("node-1")), ""},
		"ended":               {pod(t, "p", "agent:v2", on("node-3"), unready, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), ""},
		"on a ready node":     {pod(t, "p", "agent:v2", on("node-2"), unready), ""},
		"without the right":   {pod(t, "p", "agent:v2", on("node-4"), unready), ""},
		"not scheduled":       {pod(t, "p", "agent:v2", on(""), unready), ""},
	} {
		in := PodWhyInput{Pod: one.pod, Sets: []v1alpha1.SidecarSet{*set}, Nodes: nodes(new([]string))}
		w := NewPodWhy(in)
		assert.Equal(t, one.want, w.NodeProblem, name)
		if one.want != "" {
			assert.NotContains(t, w.Text(Style{}), "kubectl describe pod", name)
			assert.Contains(t, w.Text(Style{}), "pod/p in default\n  "+one.want+"\n  sidecarset/logs: injected", name)
		}
	}
}

func TestReadyPodsOfDeletedNodesAreNamed(t *testing.T) {
	in := input(t)
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2", on("node-1")), pod(t, "b", "agent:v2", on("node-3")), pod(t, "c", "agent:v2", on("node-6"))}
	in.Nodes = nodes(new([]string))
	r, err := NewRollout(in)
	require.NoError(t, err)
	assert.Equal(t, []LostPod{{"default", "b", "node-3"}}, r.LostPods, "node-6 is in no list, and cannot be read")
	shown := r.Text(Style{Now: noon})
	assert.Contains(t, shown, "\nLost:      pod default/b is ready in the API server, but its node node-3 does not exist\n")
	assert.Contains(t, shown, "kubectl delete pods -n default --field-selector spec.nodeName=node-3 --force")
	assert.Contains(t, shown, "  3 pods, 2 ready\n")
	assert.Contains(t, shown, "─ b  Updated, its node node-3 does not exist\n")
	assert.Len(t, r.ListedPods(), 1)
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	assert.Contains(t, why.Reasons, "pod default/b is ready in the API server, but its node node-3 does not exist (kubectl delete pods -n default --field-selector spec.nodeName=node-3 --force)")

	in.Pods = append(in.Pods, pod(t, "d", "agent:v2", on("node-3")))
	in.Nodes = nodes(new([]string))
	r, err = NewRollout(in)
	require.NoError(t, err)
	assert.Contains(t, r.Text(Style{Now: noon}), "\nLost:      2 pods are shown as ready on nodes that do not exist, such as default/b on node-3\n")

	in.Nodes.List = func() (sets.Set[string], error) { return nil, errors.New("forbidden") }
	r, err = NewRollout(in)
	require.NoError(t, err)
	assert.Empty(t, r.LostPods, "a user may not list nodes")
}

func TestAListNamesTheLostNodesOfPods(t *testing.T) {
	in := input(t)
	in.Pods = []*corev1.Pod{
		pod(t, "a", "agent:v2", on("node-3")), pod(t, "b", "agent:v2", on("node-1"), unready), pod(t, "c", "agent:v2", on("node-2")),
		pod(t, "d", "agent:v2", on("node-4")), pod(t, "e", "agent:v1", on("node-3")),
		pod(t, "f", "agent:v2", on("node-3"), func(p *corev1.Pod) { p.Annotations = nil }),
	}
	in.Nodes = nodes(new([]string))
	lost, err := FindLost(in)
	require.NoError(t, err)
	assert.Equal(t, Lost{Nodes: []string{"node-1", "node-3"}, Ready: 2, Updated: 1, Note: "node node-1 is NotReady for 77s (kubectl describe node node-1); and 1 node more"}, lost, "node-4 cannot be read")
	in.Pods = append(in.Pods[5:], pod(t, "g", "agent:v2", on("node-1")))
	unready, err := FindLost(in)
	require.NoError(t, err)
	assert.Equal(t, []string{"node-1"}, unready.Nodes, "the SidecarSet does not match the pod on node-3")

	calm := *in.Set.DeepCopy()
	calm.Name, calm.Status.Conditions, calm.Status.UpdatedPods = "mesh", nil, 6
	golden(t, "list-lost-nodes", NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set, calm}, Lost: map[string]Lost{"logs": lost}, Now: noon}).Text)
}

func TestSpec8_0_7_PodsOfDeletedNodesCountAsReadyNowhere(t *testing.T) {
	in := input(t)
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2", on("node-2")), pod(t, "b", "agent:v2", on("node-3")), pod(t, "c", "agent:v2", on("node-3"))}
	in.Set.Status.MatchedPods, in.Set.Status.UpdatedPods, in.Set.Status.UpdatedReadyPods, in.Set.Status.ReadyPods = 3, 3, 3, 3
	in.Set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Status: "False", Reason: v1alpha1.ReasonRolloutComplete}}
	in.Nodes = nodes(new([]string))
	lost, err := FindLost(in)
	require.NoError(t, err)
	one := NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Lost: map[string]Lost{"logs": lost}, Now: noon})[0]
	assert.Equal(t, []string{"PodsNotReady", "LostNode:node-3"}, one.Attention)
	assert.EqualValues(t, 1, one.Ready)
	r := newRollout(t, in)
	assert.Equal(t, 1, r.Counts.Ready)
	for _, headline := range []string{one.Headline, r.Headline} {
		assert.Equal(t, "Complete (2 pods not ready)", headline)
	}
	golden(t, "rollout-lost-nodes", r.Text)
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	assert.Equal(t, "3 of 3 pods updated, 1 of them ready; 0 to go, 0 unavailable of 2 allowed", why.Message)
}

// The pods of a failed node stay ready until Kubernetes detects the failure of the node.
func TestWhyNamesANodeThatIsNotReadyWithoutARollout(t *testing.T) {
	in := input(t)
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2", on("node-1")), pod(t, "b", "agent:v2", on("node-1")), pod(t, "c", "agent:v2", on("node-2"))}
	in.Nodes = nodes(new([]string))
	in.Nodes.NotReady = func() ([]corev1.Node, error) {
		unready, err := in.Nodes.Get("node-1")
		require.NoError(t, err)
		unready.Name = "node-1"
		elsewhere := unready.DeepCopy()
		elsewhere.Name = "node-9"
		return []corev1.Node{*unready, *elsewhere}, nil
	}
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	assert.Contains(t, why.Reasons, "node node-1 of 2 pods is NotReady for 77s: kubectl describe node node-1")
	assert.NotContains(t, why.Text(Style{Now: noon}), "node-9")

	// If the line of a pod names the node, why prints no other line about the node.
	in.Pods = append(in.Pods, pod(t, "d", "agent:v2", on("node-1"), written(t, 8*time.Second, "")))
	why, err = NewRolloutWhy(in)
	require.NoError(t, err)
	assert.NotContains(t, why.Text(Style{Now: noon}), "node node-1 of")
	assert.Contains(t, why.Text(Style{Now: noon}), "its node node-1 is NotReady")
}

// The pod was upgraded to agent:v1 long ago. The time of this upgrade is not the start of the wait for the
// node.
func TestSpec7_2_APodThatWaitsForItsNodeShowsNoEarlierWrite(t *testing.T) {
	in := input(t)
	in.Set.Status.Conditions = nil
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v1", written(t, 720*time.Hour, ""), func(p *corev1.Pod) {
		p.Status.ContainerStatuses[1] = corev1.ContainerStatus{Name: "agent", Image: "agent:v1", ImageID: "id-taken", Ready: true}
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
	})}
	text := textOf(t, in)
	assert.Contains(t, text, "a  Settling, its node does not respond")
	assert.NotContains(t, text, "written")
}
