package activities

import (
	"context"
	"fmt"

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
	ctx context.Context, input protocol.UpgradeBatchInput, chosen protocol.SelectedPod, pod *corev1.Pod, outcome *outcome,
) (decision, error) {
	set, stopped, err := a.fence(ctx, input.SidecarSet, input.Generation)
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

// fence stands before every write: Temporal cannot stop an activity that runs
// already, so the set itself must still want this.
func (a *Activities) fence(ctx context.Context, reference protocol.SetReference, generation int64) (set *v1alpha1.SidecarSet, stopped string, err error) {
	set, err = a.set(ctx, reference)
	switch {
	case err != nil:
		return nil, "", err
	case set == nil:
		return nil, "the SidecarSet is gone", nil
	case set.Generation != generation:
		return nil, fmt.Sprintf("generation is %d", set.Generation), nil
	case set.Spec.UpdateStrategy.Paused:
		return nil, "paused", nil
	case set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType:
		return nil, "updates are off", nil
	}
	return set, "", nil
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
