package activities

import (
	"context"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/rollout"
)

// AwaitMigration waits until hot pods run the new image everywhere but in the
// old twin, so that it can be emptied, and returns them (SPEC §7.7). It returns
// none when no pod is migrating any more, and none is being upgraded. Pauses do
// not hold it, nor does a newer generation: what was begun is finished.
func (a *Activities) AwaitMigration(ctx context.Context, input protocol.AwaitMigrationInput) (result protocol.AwaitMigrationResult, err error) {
	refused, unseen := setOf(input.Refused), input.Written
	err = a.poll(ctx, input.SidecarSet.Name, func() (time.Duration, error) {
		var err error
		if unseen, err = a.notShown(ctx, unseen); err != nil || len(unseen) > 0 {
			return beat, err
		}
		if result, err = a.migrated(ctx, input.SidecarSet, refused); err != nil {
			return 0, err
		}
		if (result.Pending > 0 || input.Upgrading) && len(result.Pods) == 0 {
			return beat, nil
		}
		return 0, nil
	})
	return result, err
}

// migrated lists the pods that can be reset; refused ones only when there is
// nobody else.
func (a *Activities) migrated(ctx context.Context, reference protocol.SetReference, refused map[protocol.PodReference]bool) (protocol.AwaitMigrationResult, error) {
	var result protocol.AwaitMigrationResult
	set, err := a.set(ctx, reference)
	if err != nil || set == nil {
		return result, err
	}
	population, err := a.population(ctx, set)
	if err != nil {
		return result, err
	}
	var again []protocol.PodReference
	for i := range population {
		pod := &population[i]
		if pod.Migrating {
			result.Pending++
		}
		switch {
		case !pod.Migrated || len(result.Pods) == rollout.MaxBatch:
		case refused[pod.Reference()]:
			again = append(again, pod.Reference())
		default:
			result.Pods = append(result.Pods, pod.Reference())
		}
	}
	if len(result.Pods) == 0 {
		result.Pods = again[:min(len(again), rollout.MaxBatch)]
	}
	return result, nil
}
