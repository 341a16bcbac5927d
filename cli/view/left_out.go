package view

import (
	"fmt"

	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/record"
)

const (
	unreadableRecord = "its annotations cannot be read: "
	differs          = "differs in more than images"
	lacksContainers  = "it lacks containers of the SidecarSet"
)

// leftOut lists the injected pods with an older version that are not matched: rollouts
// neither count nor upgrade them (SPEC §3).
func (in *Input) leftOut(version *podstate.Version) (BehindPods, error) {
	scope, err := match.NewScope(&in.Set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", in.Set.Name, err)
	}
	var found BehindPods
	for _, pod := range in.Pods {
		if !match.Active(pod) || !record.Injected(pod.Annotations, in.Set.Name) || !scope.Labels(pod.Labels) {
			continue
		}
		phase, reason := PodNotUpgradable, lacksContainers
		if state, err := version.Of(pod); err != nil {
			phase, reason = PodUnreadable, unreadableRecord+err.Error()
		} else if state.Complete || state.Updated {
			continue
		}
		var labels map[string]string
		if scope.NeedsNamespaceLabels() {
			if labels, err = in.NamespaceLabels(pod.Namespace); err != nil {
				return found, err
			}
		}
		if scope.Namespace(pod.Namespace, labels) {
			found = append(found, in.behind(pod, phase, reason))
		}
	}
	return found, nil
}
