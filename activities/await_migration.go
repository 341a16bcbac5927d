package activities

import (
	"context"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/rollout"
)

// AwaitMigration waits until hot pods run the new image everywhere but in the
// standby twin, so that it can be reset, and returns them (SPEC §7.7). It returns
// none when no pod is migrating any more and none is being upgraded, or when
// nothing has moved for idleTimeout. A cache that is out of date cannot say so:
// that is an error, and tried again. Pauses do not hold it, nor does a newer
// generation: what was begun is finished.
func (a *Activities) AwaitMigration(ctx context.Context, input protocol.AwaitMigrationInput) (result protocol.AwaitMigrationResult, err error) {
	defer keepHeartbeating(ctx, a.Clock)()
	reader := a.reader()
	set, refused := reader.recentSet(input.SidecarSet), setOf(input.Refused)
	written, idle := reader.unseenWrites(input.Written), newIdleTimer(a.Clock)
	err = a.poller().poll(ctx, input.SidecarSet.Name, func() (time.Duration, error) {
		if unseen, err := written.count(ctx); err != nil || unseen > 0 {
			return heartbeatInterval, err
		}
		found, err := findMigrating(ctx, reader, set, refused)
		if err != nil {
			return 0, err
		}
		result = protocol.AwaitMigrationResult{Pods: found.migrated, Pending: found.pending}
		if len(result.Pods) == 0 {
			result.Pods = found.migratedExcluded
		}
		if len(result.Pods) > 0 {
			return 0, nil
		}
		if result.Pending > 0 || input.Upgrading {
			if left := idle.left(protocol.Counts{Migrating: found.pending}); left > 0 {
				return left, nil
			}
		}
		return 0, a.current()
	})
	return result, err
}

// migrating are the hot pods of a set that hold a standby twin to reset.
type migrating struct {
	pending int
	// others are the pending ones that were not excluded.
	others int
	// migrated ones can be reset, MaxBatch at most; migratedExcluded are those
	// of the excluded.
	migrated, migratedExcluded []protocol.PodReference
}

func findMigrating(ctx context.Context, reader *reader, recent *recentSet, excluded map[protocol.PodReference]bool) (found migrating, err error) {
	set, err := recent.get(ctx)
	if err != nil || set == nil {
		return found, err
	}
	population, err := reader.population(ctx, set)
	if err != nil {
		return found, err
	}
	for i := range population {
		pod := &population[i]
		if !pod.Migrating {
			continue
		}
		found.pending++
		list := &found.migratedExcluded
		if !excluded[pod.Reference()] {
			found.others++
			list = &found.migrated
		}
		if pod.Migrated && len(*list) < rollout.MaxBatch {
			*list = append(*list, pod.Reference())
		}
	}
	return found, nil
}
