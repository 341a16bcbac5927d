package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/validation"
)

const (
	matchingApp  = "shop"
	matchingSets = 3
	appContainer = "app"
)

func matching() []*v1alpha1.SidecarSet {
	var sets []*v1alpha1.SidecarSet
	for i := range matchingSets {
		sets = append(sets, set(fmt.Sprintf("match-%d", i), matchingApp))
	}
	return sets
}

func other(i int) *v1alpha1.SidecarSet {
	return set(fmt.Sprintf("other-%05d", i), fmt.Sprintf("other-%05d", i))
}

// set has a container with ten variables and a mount of its own, which also
// takes the app's mounts and one of its variables.
func set(name, app string) *v1alpha1.SidecarSet {
	sidecar := v1alpha1.SidecarContainer{Container: corev1.Container{
		Name: name, Image: "registry.example.com/sidecars/" + name + ":v1",
		VolumeMounts: []corev1.VolumeMount{{Name: name, MountPath: "/var/lib/" + name}},
	}}
	for i := range 10 {
		sidecar.Env = append(sidecar.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: fmt.Sprintf("value of setting %d", i)})
	}
	sidecar.ShareVolumePolicy.Type = v1alpha1.ShareVolumePolicyEnabled
	sidecar.TransferEnv = []v1alpha1.TransferEnvVar{{SourceContainerName: appContainer, EnvName: "REGION"}}
	made := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	made.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	made.Spec.Containers = []v1alpha1.SidecarContainer{sidecar}
	made.Spec.Volumes = []corev1.Volume{{Name: name}}
	return made
}

// complete does what admission does.
func complete(set *v1alpha1.SidecarSet) error {
	validation.Default(set)
	return validation.WriteHashes(set)
}
