package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
)

func TestAPlanNamesBatchesAndPodsThatStay(t *testing.T) {
	set, sorted := logs(t)
	set.Spec.Containers[0].Image = "agent:v3"
	fixture.Hashed(set)
	set.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(3))
	set.Spec.UpdateStrategy.Paused = true
	from := sorted[0].DeepCopy()
	old := set.DeepCopy()
	old.Spec.Containers[0].Command = []string{"sleep"}
	var err error
	from.Data.Raw, err = revision.Content(&old.Spec)
	require.NoError(t, err)
	in := &PlanInput{Input: Input{Set: set, Revisions: []*appsv1.ControllerRevision{from, sorted[1]}}, Stored: set, Rejected: []string{"spec.containers[0].name: may not change"}, Pace: &Pace{Pods: 10, Took: time.Minute}}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		in.Pods = append(in.Pods, pod(t, name, "agent:v2"))
	}
	in.Pods = append(in.Pods, pod(t, "z", "agent:v1", notUpgradable))
	p, err := NewPlan(in)
	require.NoError(t, err)
	golden(t, "plan", p.Text)
	assert.Equal(t, 30*time.Second, *p.Estimate)

	in.Pace = &Pace{Pods: 1, Took: 100 * 365 * 24 * time.Hour}
	p, err = NewPlan(in)
	require.NoError(t, err)
	assert.Nil(t, p.Estimate, "more than a Duration can hold")

	set.Spec.UpdateStrategy.Type = v1alpha1.NotUpdateSidecarSetStrategyType
	p, err = NewPlan(in)
	require.NoError(t, err)
	assert.Empty(t, p.Batches)
	assert.Nil(t, p.Estimate)
}

func TestAPlanWithManyPodsIsThePlannersOwnOrder(t *testing.T) {
	set, sorted := logs(t)
	in := &PlanInput{Input: Input{Set: set, Revisions: sorted}, Stored: set}
	for i := range 300 {
		in.Pods = append(in.Pods, pod(t, "web-"+string(rune('a'+i/26%26))+string(rune('a'+i%26)), "agent:v1", func(p *corev1.Pod) {
			p.UID = types.UID(p.Name + string(rune('a'+i/26)))
		}))
	}
	p, err := NewPlan(in)
	require.NoError(t, err)
	assert.Len(t, p.Batches, 150)
	assert.Equal(t, 300, p.upgraded())
	golden(t, "plan-long", p.Text)
}

func TestChangedFieldsAreNamed(t *testing.T) {
	from := fixture.SidecarSet("x", fixture.Sidecar("a"), fixture.Sidecar("b")).Spec
	to := *from.DeepCopy()
	assert.Empty(t, ChangedFields(&from, &to))
	to.Containers[0].Image = "a:v2"
	assert.Empty(t, ChangedFields(&from, &to), "images can be upgraded")
	to.Containers[0].Args = []string{"-v"}
	to.Containers[1].Name = "c"
	assert.Equal(t, []string{"spec.containers[a].args", "spec.containers[b] (removed)", "spec.containers[c] (added)"}, ChangedFields(&from, &to))
	to = *from.DeepCopy()
	to.InitContainers = []v1alpha1.SidecarContainer{fixture.Sidecar("i")}
	assert.Empty(t, ChangedFields(&from, &to), "ordinary init containers are not hashed")
	to.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	assert.Equal(t, []string{"spec.initContainers[i] (added)"}, ChangedFields(&from, &to))
	to = *from.DeepCopy()
	to.Containers[0], to.Containers[1] = to.Containers[1], to.Containers[0]
	assert.Equal(t, []string{"the order of spec.containers"}, ChangedFields(&from, &to))
}
