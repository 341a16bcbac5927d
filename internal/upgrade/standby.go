package upgrade

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

// standbyTwin names the twin that takes the new image: the one that holds the
// empty image, else the one that is not ready, else the older, else the one that is
// not active (SPEC §7.7).
func standbyTwin(pod *corev1.Pod, sidecar podstate.Sidecar) string {
	twins := sidecar.Twins()
	// Annotations that cannot be read were refused before.
	active, _ := record.ActiveContainers(pod.Annotations)
	for _, standby := range []func(string) bool{
		func(name string) bool { return imageOf(pod, name) == sidecar.EmptyImage },
		func(name string) bool { return !ready(pod, name) },
		func(name string) bool { return older(pod, name, sidecar.Twin(name)) },
		func(name string) bool { return active[sidecar.Name] != name },
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

// older reports whether a twin's version is the lower one; of unknown ones, nobody knows.
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
