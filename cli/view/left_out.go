package view

import (
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
)

const (
	unreadableRecord = "its annotations cannot be read: "
	differs          = "differs in more than images"
	countsRestarts   = "its Job counts a restart of a sidecar as a failure (backoffLimit)"
	lacksContainers  = "it lacks containers of the SidecarSet"
)

// leftOut lists the injected pods that have an older version and are not matched. A rollout neither counts
// nor upgrades these pods (SPEC §3).
func (in *Input) leftOut(version *podstate.Version) (BehindPods, error) {
	pods, err := rollout.LeftOut(in.Set, version, in.Pods, in.NamespaceLabels)
	if err != nil {
		return nil, err
	}
	var found BehindPods
	for _, pod := range pods {
		phase, reason := PodNotUpgradable, lacksContainers
		if pod.Unreadable != nil {
			phase, reason = PodUnreadable, unreadableRecord+pod.Unreadable.Error()
		}
		found = append(found, in.behind(pod.Pod, phase, reason))
	}
	return found, nil
}
