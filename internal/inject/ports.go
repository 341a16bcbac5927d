package inject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// removePorts removes the ports of a standby twin in a pod with hostNetwork (SPEC 4.8.4). Kubernetes rejects a
// pod with the same host port in two containers. In probes and hooks, removePorts replaces the name of a port
// with its number. removePorts does not change the fields that the twins share.
func removePorts(twin *corev1.Container) {
	ports := twin.Ports
	if len(ports) == 0 {
		return
	}
	twin.Ports = nil
	for _, probe := range []**corev1.Probe{&twin.LivenessProbe, &twin.ReadinessProbe, &twin.StartupProbe} {
		if *probe != nil {
			*probe = (*probe).DeepCopy()
			numberPorts(ports, (*probe).HTTPGet, (*probe).TCPSocket)
		}
	}
	if twin.Lifecycle == nil {
		return
	}
	twin.Lifecycle = twin.Lifecycle.DeepCopy()
	for _, hook := range []*corev1.LifecycleHandler{twin.Lifecycle.PostStart, twin.Lifecycle.PreStop} {
		if hook != nil {
			numberPorts(ports, hook.HTTPGet, hook.TCPSocket)
		}
	}
}

// numberPorts replaces names of ports with numbers. Each action may be nil.
func numberPorts(ports []corev1.ContainerPort, get *corev1.HTTPGetAction, socket *corev1.TCPSocketAction) {
	if get != nil {
		get.Port = numbered(ports, get.Port)
	}
	if socket != nil {
		socket.Port = numbered(ports, socket.Port)
	}
}

func numbered(ports []corev1.ContainerPort, port intstr.IntOrString) intstr.IntOrString {
	index := slices.IndexFunc(ports, func(p corev1.ContainerPort) bool { return p.Name != "" && p.Name == port.StrVal })
	if port.Type != intstr.String || index < 0 {
		return port
	}
	return intstr.FromInt32(ports[index].ContainerPort)
}
