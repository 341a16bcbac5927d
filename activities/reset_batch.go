package activities

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/upgrade"
)

// Events on pods whose old twin was to be emptied.
const (
	eventResetSucceed = "ResetContainerSucceed"
	eventResetFailed  = "ResetContainerFailed"
)

// ResetBatch gives the old twins of migrated pods the empty image, with one
// guarded write and one event for each pod. It advances no hash.
func (a *Activities) ResetBatch(ctx context.Context, input protocol.ResetBatchInput) (protocol.ResetBatchResult, error) {
	var outcome outcome
	err := each(ctx, a, input.Pods, func(ctx context.Context, reference protocol.PodReference) error {
		return a.change(ctx, reference, &outcome, change{
			decide: func(ctx context.Context, pod *corev1.Pod) (decision, error) {
				return a.decideReset(ctx, input.SidecarSet, pod)
			},
			write: a.resetPod,
		})
	})
	return outcome.resets(input.Pods), err
}

func (a *Activities) decideReset(ctx context.Context, reference protocol.SetReference, pod *corev1.Pod) (decision, error) {
	set, err := a.set(ctx, reference)
	if err != nil || set == nil {
		return decision{}, err
	}
	state, matched, err := a.stateOf(ctx, set, pod)
	if err != nil || !matched || !state.Migrated {
		return decision{}, err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return decision{refusal: err}, nil
	}
	patch, err := upgrade.Reset(pod, version, metav1.NewTime(a.Clock.Now()))
	return decision{patch: patch, refusal: err}, nil
}

func (a *Activities) resetPod(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	before := pod.DeepCopy()
	err := a.patchPod(ctx, pod, patch)
	switch {
	case err == nil:
		a.Events.Eventf(pod, nil, corev1.EventTypeNormal, eventResetSucceed, "Reset", "the old containers of hot-upgrade sidecars were emptied")
	case refused(err):
		a.Events.Eventf(before, nil, corev1.EventTypeWarning, eventResetFailed, "Reset", "%s", fmt.Sprintf("the API server refused to empty the old containers: %s", reason(err)))
	}
	return err
}
