package activities

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/podstate"
)

// WriteUpgradableConditions writes the condition SidecarSetUpgradable of the given pods if the
// condition is out of date (SPEC §7.2).
func (a *Activities) WriteUpgradableConditions(ctx context.Context, input protocol.WriteUpgradableConditionsInput) (protocol.WriteUpgradableConditionsResult, error) {
	defer keepHeartbeating(ctx, a.Clock)()
	defer a.Metrics.time(changeCondition, a.Clock)()
	var outcome outcome
	writer, recent := a.writer(changeCondition), a.recentSet(input.SidecarSet, nil)
	decide := func(ctx context.Context, pod *corev1.Pod) (decision, error) {
		set, err := recent.get(ctx)
		if err != nil || set == nil || set.Generation != input.Generation {
			return decision{}, err
		}
		state, matched, err := a.state(ctx, set, pod)
		if err != nil || !matched {
			return decision{}, err
		}
		condition, changed := podstate.UpgradableCondition(pod, set.Name, state, metav1.NewTime(a.Clock.Now()))
		if !changed {
			return decision{}, nil
		}
		return patchCondition(pod, condition), nil
	}
	pool, _ := newPool(ctx, a.Writers)
	for _, pod := range input.Pods {
		pool.submit(func(ctx context.Context) error {
			_, err := writer.apply(ctx, pod, &outcome, change{decide: decide, write: writer.patchStatus})
			return err
		})
	}
	err := pool.wait()
	return protocol.WriteUpgradableConditionsResult{Written: outcome.writes(input.Pods), Rejected: outcome.failures(input.Pods)}, err
}

// patchCondition returns a patch of a condition, with the uid and the resourceVersion of the pod as
// preconditions.
func patchCondition(pod *corev1.Pod, condition corev1.PodCondition) decision {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status":   map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return decision{rejection: fmt.Errorf("encode the condition of pod %s/%s: %w", pod.Namespace, pod.Name, err)}
	}
	return decision{patch: patch}
}
