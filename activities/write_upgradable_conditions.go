package activities

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/podstate"
)

// WriteUpgradableConditions writes the pod condition SidecarSetUpgradable where it is out of
// date, and only there (SPEC §7.2).
func (a *Activities) WriteUpgradableConditions(ctx context.Context, input protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error) {
	defer a.keepAlive(ctx)()
	var outcome outcome
	set := a.liveSet(input.SidecarSet)
	err := each(ctx, a, input.Pods, func(ctx context.Context, reference protocol.PodReference) error {
		return a.change(ctx, reference, &outcome, change{
			decide: func(ctx context.Context, pod *corev1.Pod) (decision, error) {
				return a.decideCondition(ctx, set, input.Generation, pod)
			},
			write: a.patchStatus,
		})
	})
	return outcome.conditions(input.Pods), err
}

func (a *Activities) decideCondition(ctx context.Context, live *liveSet, generation int64, pod *corev1.Pod) (decision, error) {
	set, err := live.get(ctx)
	if err != nil || set == nil || set.Generation != generation {
		return decision{}, err
	}
	state, matched, err := a.stateOf(ctx, set, pod)
	if err != nil || !matched {
		return decision{}, err
	}
	condition, changed, err := podstate.UpgradableCondition(pod, set.Name, state, metav1.NewTime(a.Clock.Now()))
	if err != nil || !changed {
		return decision{refusal: err}, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return decision{refusal: fmt.Errorf("encode the condition of pod %s/%s: %w", pod.Namespace, pod.Name, err)}, nil
	}
	return decision{patch: patch}, nil
}

func (a *Activities) patchStatus(ctx context.Context, pod *corev1.Pod, patch []byte) error {
	return a.Status.Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch))
}
