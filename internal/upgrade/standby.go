package upgrade

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/podstate"
)

// standbyTwin returns the twin that gets the new image (SPEC §7.7). The first rule that selects exactly one
// twin applies: the twin with the empty image, the twin that is not ready, the older twin, the twin that is
// not active. If no rule applies, standbyTwin returns the second twin.
func standbyTwin(pod *corev1.Pod, sidecar podstate.Sidecar, active string) string {
	twins := podstate.Twins(sidecar.Name)
	for _, standby := range []func(string) bool{
		func(name string) bool { return imageOf(pod, name) == sidecar.EmptyImage },
		func(name string) bool { return !ready(pod, name) },
		func(name string) bool { return older(pod, name, sidecar.Twin(name)) },
		func(name string) bool { return active != name },
	} {
		first, second := standby(twins[0]), standby(twins[1])
		switch {
		case first && !second:
			return twins[0]
		case second && !first:
			return twins[1]
		}
	}
	return twins[1]
}

// older reports whether the versions of both twins are known, and the version of twin is lower than the
// version of other.
func older(pod *corev1.Pod, twin, other string) bool {
	version, known := podstate.TwinVersion(pod, twin)
	others, knownOther := podstate.TwinVersion(pod, other)
	return known && knownOther && version < others
}

func imageOf(pod *corev1.Pod, container string) string {
	if c := podstate.Container(pod, container, false); c != nil {
		return c.Image
	}
	return ""
}

func ready(pod *corev1.Pod, container string) bool {
	status := podstate.Status(pod, container, false)
	return status != nil && status.Ready
}
