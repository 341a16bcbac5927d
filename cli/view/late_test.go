package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSpec8_0_10_APodThatDoesNotBecomeReadyNeedsAttention(t *testing.T) {
	started := func(p *corev1.Pod) {
		p.Status.ContainerStatuses[1].Image, p.Status.ContainerStatuses[1].ImageID = "agent:v2", "id-agent:v2"
		p.Status.ContainerStatuses[1].State.Running = &corev1.ContainerStateRunning{}
	}
	in := input(t)
	in.Now, in.Nodes.Now = noon, noon
	in.Set.Status.Conditions = in.Set.Status.Conditions[:1]
	in.Set.Status.Conditions[0].Message = "2 of 3 pods updated; waiting for pods such as default/b; x"
	list := func() Summaries {
		return NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Waiting: map[string]*corev1.Pod{"logs": in.Pods[0]}, Now: noon})
	}
	in.Pods = []*corev1.Pod{pod(t, "b", "agent:v2", written(t, 20*time.Second, ""), started), pod(t, "c", "agent:v1")}
	in.Set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(1))
	assert.Equal(t, "Progressing", newRollout(t, in).Headline)
	assert.Equal(t, "Progressing", list()[0].Headline)
	assert.Empty(t, list()[0].Attention)
	early := newWhy(t, in).Text(Style{Now: noon})
	assert.Contains(t, early, "to see its log: kubectl logs b -n default -c agent\n")
	assert.Contains(t, early, "if the new version is the cause, go back: kubectl sidecarset undo logs; or stop it: kubectl sidecarset pause logs\n")
	in.Set.Spec.UpdateStrategy.Paused = true
	paused := newWhy(t, in).Text(Style{Now: noon})
	assert.Contains(t, paused, "if the new version is the cause, go back: kubectl sidecarset undo logs\n")
	in.Set.Spec.UpdateStrategy.Paused = false

	in.Pods[0] = pod(t, "b", "agent:v2", written(t, 45*time.Second, ""), started)
	assert.Equal(t, "Waiting (pod not ready)", newRollout(t, in).Headline)
	assert.Equal(t, "Waiting (pod not ready)", list()[0].Headline)
	assert.Equal(t, []string{"PodNotReady:default/b"}, list()[0].Attention)
	golden(t, "list-late", list().Text)
	golden(t, "rollout-late", newRollout(t, in).Text)
	golden(t, "why-late", newWhy(t, in).Text)
	namespace, name := WaitsFor(in.Set)
	assert.Equal(t, "default/b", namespace+"/"+name)
}

// The hot upgrade of a pod whose app crashes never ends, and must not hide a late pod.
func TestSpec8_0_AHotUpgradeHidesNoLatePod(t *testing.T) {
	r := &Rollout{Revisions: []Revision{{Owners: []Owner{{Pods: []Pod{
		{Name: "hot", Phase: PodMigrating, Since: new(noon.Add(-time.Hour))},
		{Name: "early", Phase: PodUpgrading, Since: new(noon.Add(-time.Second))},
		{Name: "late", Phase: PodUpgrading, Since: new(noon.Add(-time.Minute))},
	}}}}}}
	r.Phase = protocol.PhaseWaiting
	require.NotNil(t, r.latePod(noon))
	assert.Equal(t, "late", r.latePod(noon).Name)
	r.Phase = protocol.PhaseProgressing
	assert.Nil(t, r.latePod(noon))
}
