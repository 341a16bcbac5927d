package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// blocked sets the image of the app container to an image that cannot be pulled.
func blocked(p *corev1.Pod) {
	p.Spec.Containers[0].Image = "nginx:bad"
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	p.Status.ContainerStatuses[0].Ready = false
	p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
}

func textOf(t *testing.T, in *Input) string {
	t.Helper()
	r, err := NewRollout(in)
	require.NoError(t, err)
	return r.Text(Style{Now: noon})
}

// An undo does not repair a pod whose app container cannot start.
func TestAnAppThatCannotStartIsNamedAsTheCause(t *testing.T) {
	const cause = "not ready: app, agent (app: ImagePullBackOff, image nginx:bad)"
	in := input(t)
	in.Set.Status.Conditions = nil
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2", written(t, 2*time.Minute, ""), blocked, func(p *corev1.Pod) {
		p.Status.ContainerStatuses[1].Image, p.Status.ContainerStatuses[1].ImageID = "agent:v2", "id-agent:v2"
	})}
	text := textOf(t, in)
	assert.Contains(t, text, "\nWaiting:   default/a, written 2m ago: "+cause+"\n")
	assert.Contains(t, text, "a  Upgrading for 2m, "+cause+"\n")
	assert.Contains(t, text, "\nNext:      kubectl sidecarset why logs; kubectl describe pod a -n default\n")
	why, err := NewRolloutWhy(in)
	require.NoError(t, err)
	assert.Contains(t, why.Text(Style{Now: noon}), "default/a is Upgrading: "+cause)
}

func TestAFailureOfTheImageBeforeAnUndoIsNotThatOfTheNewImage(t *testing.T) {
	in := input(t)
	in.Set.Status.Conditions = nil
	unpulled := func(image string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses[1].Image = image
			p.Status.ContainerStatuses[1].State.Waiting.Message = `Back-off pulling image "` + image + `"`
		}
	}
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2", written(t, time.Second, "ImagePullBackOff"), unpulled("agent:bad"))}
	text := textOf(t, in)
	assert.Contains(t, text, "\nWaiting:   default/a, written 1s ago: the kubelet has not observed the change\n")
	assert.NotContains(t, text, "ImagePullBackOff")

	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2", written(t, time.Second, "ImagePullBackOff"), unpulled("agent:bad"), func(p *corev1.Pod) {
		p.Status.ContainerStatuses[1].ImageID = "id-agent:v2"
	})}
	assert.Contains(t, textOf(t, in), "written 1s ago: not ready: agent\n")

	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2", written(t, time.Second, "ImagePullBackOff"), unpulled("agent:v2"))}
	assert.Contains(t, textOf(t, in), "written 1s ago: agent: ImagePullBackOff, image agent:v2\n")
}

func TestAPodThatIsNotReadyAfterTheRolloutIsNamed(t *testing.T) {
	in := input(t)
	in.Set.Status.Conditions = in.Set.Status.Conditions[:1]
	in.Set.Status.Conditions[0].Reason = v1alpha1.ReasonRolloutComplete
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v2"), pod(t, "b", "agent:v2", blocked)}
	text := textOf(t, in)
	assert.Contains(t, text, "\nStatus:    Complete (1 pod not ready)\n")
	assert.Contains(t, text, "\nWaiting:   default/b: not ready: app (app: ImagePullBackOff, image nginx:bad)\n")
	assert.Contains(t, text, "\nNext:      kubectl describe pod b -n default\n")
	in.Set.Status.UpdatedPods, in.Set.Status.UpdatedReadyPods = 6, 5
	assert.Equal(t, []string{"PodsNotReady"}, NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Now: noon})[0].Attention)
}

func TestSpec11_7_5_AFrozenRolloutHasTheCommandThatEndsTheFreeze(t *testing.T) {
	in := input(t)
	in.Pods = []*corev1.Pod{pod(t, "a", "agent:v1")}
	in.Set.Status.Conditions = in.Set.Status.Conditions[:1]
	c := &in.Set.Status.Conditions[0]
	for _, by := range []string{"incident", "incident: incident 42", "incident until 2026-11-28T00:00:00Z: sales; and more"} {
		c.Reason, c.Message = v1alpha1.ReasonFrozen, "frozen by RolloutFreeze "+by+"; 0 of 1 pods updated, 0 of them ready"
		assert.Contains(t, textOf(t, in), "\nNext:      kubectl sidecarset unfreeze incident\n")
		want := "frozen by RolloutFreeze " + by + " (kubectl sidecarset unfreeze incident)"
		assert.Equal(t, want, Frozen(in.Set))
		why, err := NewRolloutWhy(in)
		require.NoError(t, err)
		assert.Equal(t, want, why.Reasons[0])
	}
	c.Message = "frozen by RolloutFreeze outrigger-fleet: peak; 0 of 1 pods updated, 0 of them ready"
	assert.Equal(t, "frozen by RolloutFreeze outrigger-fleet: peak (outrigger fleet unfreeze)", Frozen(in.Set))
	c.Reason, c.Message = v1alpha1.ReasonOutsideWindow, "frozen until 2026-11-28T00:00:00Z; 0 of 1 pods updated, 0 of them ready"
	assert.Equal(t, "frozen until 2026-11-28T00:00:00Z", Frozen(in.Set))
	c.Reason = v1alpha1.ReasonRolloutProgress
	assert.Empty(t, Frozen(in.Set))
}

func TestAPlanWithoutSlotsNamesMaxUnavailable(t *testing.T) {
	in := &PlanInput{Input: *input(t)}
	in.Stored, in.Pods = in.Set, []*corev1.Pod{pod(t, "a", "agent:v1")}
	in.Set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(0))
	p, err := NewPlan(in)
	require.NoError(t, err)
	assert.Equal(t, []StayingPod{{"default/a", "maxUnavailable is 0, so that no ready pod may be upgraded"}}, p.Stay)
}

// A rollout without a permit of the fleet has not ended, even if no pod has to be upgraded.
func TestSpec12_9_ARolloutWithoutAPermitNamesTheFaultOfItsFleet(t *testing.T) {
	const wait = "the rollout waits for a permit of the fleet; the connection to the fleet fails: the namespace does not exist (create it)"
	for _, images := range [][]string{{"agent:v1", "agent:v2"}, {"agent:v2", "agent:v2"}} {
		in := input(t)
		c := &in.Set.Status.Conditions[0]
		c.Type, c.Status, c.Reason, c.Message = v1alpha1.ConditionProgressing, "False", v1alpha1.ReasonAwaitingPermit, wait+"; 1 of 2 pods updated, 1 of them ready"
		in.Pods = []*corev1.Pod{pod(t, "a", images[0]), pod(t, "b", images[1])}
		assert.Equal(t, "frozen: "+wait, Frozen(in.Set))
		text := newRollout(t, in).Text(Style{Now: noon})
		assert.Contains(t, text, "\nStatus:    Frozen\n", images)
		assert.Contains(t, text, "\nFrozen:    "+wait+"\n", images)
	}
}
