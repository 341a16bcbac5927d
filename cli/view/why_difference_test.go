package view

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

func TestSpec8_0_11_WhyOfAPodNamesTheFieldThatDiffers(t *testing.T) {
	set, recorded := logs(t)
	set.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
	fixture.Hashed(set)
	upgrade := func(revisions []*appsv1.ControllerRevision) string {
		return NewPodWhy(PodWhyInput{Pod: pod(t, "p", "agent:v1"), Sets: []v1alpha1.SidecarSet{*set}, Revisions: func(*v1alpha1.SidecarSet) []*appsv1.ControllerRevision { return revisions }}).Sets[0].Upgrade
	}
	assert.Equal(t, "NotUpgradable: differs in more than images: spec.containers[agent].env (kubectl sidecarset restart logs)", upgrade(recorded))
	assert.Equal(t, "NotUpgradable: differs in more than images; its revision is not recorded any more, so the changed field is not known (kubectl sidecarset restart logs)", upgrade(nil))
}
