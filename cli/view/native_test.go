package view

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

// mesh moves agent to the init containers as a native sidecar, after an ordinary init container.
func mesh(set *v1alpha1.SidecarSet) *v1alpha1.SidecarSet {
	agent := set.Spec.Containers[0]
	agent.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	set.Spec.Containers, set.Spec.InitContainers = nil, []v1alpha1.SidecarContainer{fixture.Sidecar("first"), agent}
	return fixture.Hashed(set)
}

func meshed(p *corev1.Pod) {
	agent := p.Spec.Containers[1]
	rehash(p, logsOf(agent.Image), mesh(logsOf(agent.Image)))
	agent.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	p.Spec.InitContainers, p.Spec.Containers = []corev1.Container{fixture.Container("first"), agent}, p.Spec.Containers[:1]
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "first", Image: "first:v0"}, p.Status.ContainerStatuses[1]}
	p.Status.ContainerStatuses = p.Status.ContainerStatuses[:1]
}

func TestWhyNamesKubeletsThatDoNotRestartNativeSidecars(t *testing.T) {
	set, _ := logs(t)
	mesh(set)
	upgrade := func(change ...func(*corev1.Pod)) string {
		return NewPodWhy(PodWhyInput{Pod: pod(t, "p", "agent:v2", append(change, meshed)...), Sets: []v1alpha1.SidecarSet{*set}}).Sets[0].Upgrade
	}
	assert.Equal(t, "Updated", upgrade())
	assert.Equal(t, "Upgrading: agent: still runs agent:v1; kubelets before 1.33 do not restart a native sidecar (kubectl describe pod p -n default)", upgrade(written(t, 0, "")))
	assert.Equal(t, "Failing: agent: ImagePullBackOff, image agent:v2 (kubectl sidecarset undo logs)", upgrade(written(t, 0, "ErrImagePull")))
	assert.Equal(t, "Upgrading: not ready: agent (kubectl describe pod p -n default)", upgrade(written(t, 0, ""), func(p *corev1.Pod) {
		p.Status.ContainerStatuses[1].Image, p.Status.ContainerStatuses[1].ImageID = "agent:v2", "id-agent:v2"
	}), "an ordinary init container has ended")
}

func TestTheLogOfANativeSidecarThatIsNotReady(t *testing.T) {
	running := func(p *corev1.Pod) {
		p.Status.ContainerStatuses[1].State.Running, p.Status.ContainerStatuses[1].Ready = &corev1.ContainerStateRunning{}, false
	}
	p := Pod{Namespace: "default", Name: "p", unreadyContainer: unreadyContainer(pod(t, "p", "agent:v2", running, meshed))}
	assert.Equal(t, "kubectl logs p -n default -c agent", p.logsCommand())
	notStarted := pod(t, "p", "agent:v2", meshed)
	notStarted.Status.InitContainerStatuses = nil
	assert.Empty(t, unreadyContainer(notStarted))
}

func TestAPlanNamesImagesThatOnlyNewPodsGet(t *testing.T) {
	set, sorted := logs(t)
	stored := mesh(set.DeepCopy())
	wanted := stored.DeepCopy()
	plan := func() *Plan {
		p, err := NewPlan(&PlanInput{Input: Input{Set: fixture.Hashed(wanted), Revisions: sorted, Pods: []*corev1.Pod{pod(t, "a", "agent:v2", meshed)}}, Stored: stored})
		require.NoError(t, err)
		return p
	}
	wanted.Spec.InitContainers[1].Image = "agent:v3"
	assert.Empty(t, plan().Notes)
	wanted.Spec.InitContainers[0].Image = "first:v2"
	assert.Equal(t, []string{"only new pods get the new image of ordinary init containers: spec.initContainers[first]"}, plan().Notes)
	assert.Equal(t, [][]string{{"default/a"}}, plan().Batches)
	assert.Empty(t, plan().Stay)
}

func TestChangedFieldsOfNativeSidecars(t *testing.T) {
	set, _ := logs(t)
	from := mesh(set).Spec
	to := *from.DeepCopy()
	to.InitContainers[0].Image, to.InitContainers[1].Image = "first:v9", "agent:v9"
	assert.Empty(t, ChangedFields(&from, &to))
	to.InitContainers[0].Args, to.InitContainers[1].Args = []string{"-a"}, []string{"-b"}
	assert.Equal(t, []string{"spec.initContainers[agent].args", "spec.initContainers[first].args"}, ChangedFields(&from, &to))
}
