package podstate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAPodIsRecreatedByItsOwner(t *testing.T) {
	for owner, want := range map[string]string{
		"ReplicaSet/web-5d6":   "Deployment/web",
		"ReplicaSet/other-7f9": "ReplicaSet/other-7f9",
		"StatefulSet/db":       "StatefulSet/db",
		"CloneSet/clones":      "CloneSet/clones",
		"":                     "/",
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: map[string]string{"pod-template-hash": "5d6"}}}
		if kind, name, ok := strings.Cut(owner, "/"); ok {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
		}
		kind, name := Owner(pod)
		assert.Equal(t, want, kind+"/"+name)
		assert.Equal(t, owner != "", Controlled(pod), owner)
	}
}

func TestSpec7_2_13_APodOfAJobThatCountsRestartsIsNotUpgradable(t *testing.T) {
	for name, c := range map[string]struct {
		policy     corev1.RestartPolicy
		controller metav1.OwnerReference
		upgradable bool
	}{
		"a Job":                     {corev1.RestartPolicyOnFailure, metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Controller: new(true)}, false},
		"a Job that recreates pods": {corev1.RestartPolicyNever, metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Controller: new(true)}, true},
		"another kind":              {corev1.RestartPolicyOnFailure, metav1.OwnerReference{APIVersion: "acme.io/v1", Kind: "Job", Controller: new(true)}, true},
		"an owner":                  {corev1.RestartPolicyOnFailure, metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job"}, true},
	} {
		pod := upgraded(func(p *corev1.Pod, _ *corev1.ContainerStatus) {
			p.Spec.NodeName, p.Spec.RestartPolicy, p.OwnerReferences = "n", c.policy, []metav1.OwnerReference{c.controller}
		})
		newer := version()
		newer.Hash = "newer"
		state, err := newer.Of(pod)
		require.NoError(t, err)
		assert.Equal(t, c.upgradable, state.Upgradable, name)
		pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}
		pod.Status.ContainerStatuses[1].ImageID, pod.Status.ContainerStatuses[1].RestartCount = "", 0
		state, err = newer.Of(pod)
		require.NoError(t, err)
		assert.True(t, state.Upgradable, "%s: the upgrade of a sidecar that cannot start restarts nothing", name)
		pod.Status.ContainerStatuses = nil
		state, err = newer.Of(pod)
		require.NoError(t, err)
		assert.Equal(t, c.upgradable, state.Upgradable, "%s: the sidecar may be running", name)
		pod.Spec.NodeName = ""
		state, err = newer.Of(pod)
		require.NoError(t, err)
		assert.True(t, state.Upgradable, "%s: the pod has no node", name)
		state, err = version().Of(pod)
		require.NoError(t, err)
		assert.True(t, state.Updated && state.Upgradable, name)
	}
}
