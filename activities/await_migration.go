package activities

import (
	"context"
	"slices"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

// AwaitMigration waits until hot pods can be reset: all containers except the standby twin run the new image, and
// resets have a free slot (SPEC §7.7). The result contains rejected pods only if no other pod can be reset. The
// result contains no pods if no pod is migrating or being upgraded, or if nothing has changed for idleTimeout and no
// reset is in progress. If the cache is stale, AwaitMigration returns an error, and Temporal retries the activity. A
// pause or a newer generation does not stop the activity, because hot upgrades in progress continue.
func (a *Activities) AwaitMigration(ctx context.Context, input protocol.AwaitMigrationInput) (result protocol.AwaitMigrationResult, err error) {
	defer keepHeartbeating(ctx, a.Clock)()
	set, rejected := a.recentSet(input.SidecarSet, nil), input.Rejected.Set()
	excluded := func(pod protocol.PodReference) bool { return rejected[protocol.FingerprintOf(pod.UID)] }
	written, idle := a.unseenWrites(input.Written), newIdleTimer(a.Clock)
	err = a.poll(ctx, input.SidecarSet.Name, func() (time.Duration, error) {
		if unseen, err := written.count(ctx); err != nil || unseen > 0 {
			return heartbeatInterval, err
		}
		current, err := set.get(ctx)
		if err != nil {
			return 0, err
		}
		found, err := a.findMigrating(ctx, current, excluded)
		if err != nil {
			return 0, err
		}
		result = protocol.AwaitMigrationResult{Pods: found.migrated, Pending: found.pending}
		if len(result.Pods) == 0 {
			result.Pods = found.migratedExcluded
		}
		if len(result.Pods) > 0 && found.slots(nothingWritten) > 0 {
			return 0, nil
		}
		waits := len(result.Pods) > 0 && found.resetting()
		result.Pods = nil
		if waits {
			// After the end of a rollout, nothing wakes the run once the kubelet has restarted an emptied twin.
			return heartbeatInterval, nil
		}
		if result.Pending > 0 || input.Upgrading {
			if left := idle.left(protocol.Counts{Migrating: found.pending}); left > 0 {
				return left, nil
			}
		}
		return 0, a.Current()
	})
	return result, err
}

// migrating contains the hot pods of a SidecarSet that have a standby twin to reset. pending is the number of
// these pods.
type migrating struct {
	pending int
	// population contains all matched pods of the SidecarSet. maxUnavailable is the limit of the SidecarSet
	// as a number of pods.
	population     []rollout.Pod
	maxUnavailable int
	// migrated lists pods that can be reset. migratedExcluded lists excluded pods that can be reset. Each
	// list has at most MaxBatch pods.
	migrated, migratedExcluded []protocol.PodReference
}

// slots returns the number of further pods that may be reset now. written reports whether the caller has
// written the reset of a pod, because the cache may not show this write yet.
func (m *migrating) slots(written func(protocol.PodReference) bool) int {
	slots := max(m.maxUnavailable, 1)
	for i := range m.population {
		pod := &m.population[i]
		// Pods that are unavailable after resets of earlier batches also occupy slots. A pod whose reset is in
		// progress occupies a slot even if the rollout of its content has ended.
		if pod.Migrating && written(pod.Reference()) || !pod.Migrating && (pod.UnavailableByUpgrade() || pod.Resetting) {
			slots--
		}
	}
	return max(slots, 0)
}

// resetting reports whether the reset of a pod is in progress.
func (m *migrating) resetting() bool {
	return slices.ContainsFunc(m.population, func(pod rollout.Pod) bool { return !pod.Migrating && pod.Resetting })
}

func nothingWritten(protocol.PodReference) bool { return false }

// findMigrating finds the migrating pods of a SidecarSet. If set is nil, findMigrating finds no pods.
func (a *Activities) findMigrating(ctx context.Context, set *v1alpha1.SidecarSet, excluded func(protocol.PodReference) bool) (found migrating, err error) {
	if set == nil {
		return found, nil
	}
	population, err := a.population(ctx, set)
	if err != nil {
		return found, err
	}
	found.population = population
	// An invalid maxUnavailable counts as 0, and does not stop the resets of hot upgrades in progress.
	found.maxUnavailable, _ = rollout.MaxUnavailable(&set.Spec.UpdateStrategy, len(population))
	for i := range population {
		pod := &population[i]
		if !pod.Migrating {
			continue
		}
		found.pending++
		list := &found.migratedExcluded
		if !excluded(pod.Reference()) {
			list = &found.migrated
		}
		if pod.Migrated && len(*list) < rollout.MaxBatch {
			*list = append(*list, pod.Reference())
		}
	}
	return found, nil
}
