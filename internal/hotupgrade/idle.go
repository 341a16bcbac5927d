// Package hotupgrade is the state machine of a hot sidecar's two twins: the
// new image goes into the idle one, migration is awaited, the old one is
// emptied (SPEC §7.7). It is pure and starts from the pod as it is, so each
// step can be taken by anyone, at any time, again.
package hotupgrade

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/podstate"
)

// Idle names the twin that an upgrade may take: the one that holds the empty
// image, else the one that is not ready, else the older.
func Idle(pod *corev1.Pod, sidecar podstate.Sidecar) string {
	twins := sidecar.Twins()
	for _, unfit := range []func(string) bool{
		func(name string) bool { return image(pod, name) == sidecar.EmptyImage },
		func(name string) bool { return !isReady(pod, name) },
		func(name string) bool {
			return podstate.TwinVersion(pod, name) < podstate.TwinVersion(pod, sidecar.Twin(name))
		},
	} {
		first, second := unfit(twins[0]), unfit(twins[1])
		switch {
		case first && !second:
			return twins[0]
		case second && !first:
			return twins[1]
		}
	}
	return twins[1]
}

func image(pod *corev1.Pod, container string) string {
	if c := podstate.Container(pod, container, false); c != nil {
		return c.Image
	}
	return ""
}

func isReady(pod *corev1.Pod, container string) bool {
	status := podstate.Status(pod, container, false)
	return status != nil && status.Ready
}
