package inject

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

// In a pod with hostNetwork, each container port is a host port, and Kubernetes rejects duplicate host ports.
func TestSpec4_8_OnlyTheActiveTwinHasPortsInTheNetworkOfTheHost(t *testing.T) {
	get := func(port intstr.IntOrString) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: port}}
	}
	side := fixture.Sidecar("side", hot, func(s *v1alpha1.SidecarContainer) {
		s.Ports = []corev1.ContainerPort{{ContainerPort: 1, Protocol: "TCP"}, {Name: "admin", ContainerPort: 15020, Protocol: "TCP"}}
		s.ReadinessProbe = &corev1.Probe{ProbeHandler: get(intstr.FromString("admin"))}
		s.LivenessProbe = &corev1.Probe{ProbeHandler: get(intstr.FromString("unknown"))}
		s.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(9)}}}
		s.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("admin")}}}
	})
	set := fixture.SidecarSet("s", side)
	pod := fixture.Pod(fixture.Container("app"))
	twins := injectInto(t, pod, set).Spec.Containers[:2]
	assert.Equal(t, side.Ports, twins[1].Ports)

	pod.Spec.HostNetwork = true
	twins = injectInto(t, pod, set).Spec.Containers[:2]
	assert.Equal(t, side.Ports, twins[0].Ports)
	assert.Equal(t, side.ReadinessProbe, twins[0].ReadinessProbe)
	assert.Equal(t, side.Lifecycle, twins[0].Lifecycle)
	assert.Empty(t, twins[1].Ports)
	assert.Equal(t, intstr.FromInt32(15020), twins[1].ReadinessProbe.HTTPGet.Port)
	assert.Equal(t, side.LivenessProbe, twins[1].LivenessProbe)
	assert.Equal(t, side.StartupProbe, twins[1].StartupProbe)
	assert.Equal(t, intstr.FromInt32(15020), twins[1].Lifecycle.PreStop.TCPSocket.Port)
}
