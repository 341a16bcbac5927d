package activities

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/upgrade"
)

// decideUpgrade looks at a chosen pod as it is now.
func (a *Activities) decideUpgrade(
	ctx context.Context, fence *fence, chosen protocol.SelectedPod, pod *corev1.Pod, outcome *outcome,
) (decision, error) {
	set, stopped, err := fence.check(ctx)
	if err != nil {
		return decision{}, err
	}
	if stopped != "" {
		outcome.stop(stopped)
		return decision{}, nil
	}
	state, matched, err := a.stateOf(ctx, set, pod)
	switch {
	case err != nil || !matched:
		return decision{}, err
	case state.Updated:
		return decision{done: true}, nil
	case !state.Upgradable || state.Waits() || chosen.Unready && state.Ready:
		return decision{}, nil
	}
	patch, err := a.upgradePatch(set, pod)
	return decision{patch: patch, refusal: err}, nil
}

func (a *Activities) upgradePatch(set *v1alpha1.SidecarSet, pod *corev1.Pod) ([]byte, error) {
	version, err := podstate.NewVersion(set)
	if err != nil {
		return nil, err
	}
	name, err := revision.Current(set)
	if err != nil {
		return nil, err
	}
	target := upgrade.Target{Version: version, Revision: name, SetVersion: set.ResourceVersion, Metadata: set.Spec.PatchPodMetadata}
	return upgrade.Patch(pod, target, metav1.NewTime(a.Clock.Now()))
}
