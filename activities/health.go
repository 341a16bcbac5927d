package activities

import (
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// maxHealthWait is the longest time between two observations while a pod that is not ready may become a failed
// pod. Each worker records its own observations, and any worker may make the next plan. Every worker therefore
// needs recent observations.
const maxHealthWait = time.Minute

// observeHealth marks the pods of population that the policy counts as failed, because a pod has not been ready
// for too long or an app container has restarted. next is the time until the next observation, or 0 if no
// observation is due.
func (a *Activities) observeHealth(set *v1alpha1.SidecarSet, population []rollout.Pod, current *protocol.Stage) (next time.Duration) {
	if !stage.ObservesHealth(current) {
		return 0
	}
	attempt := set.Annotations[v1alpha1.HashAnnotation] + "/" + current.Retried.UTC().Format(time.RFC3339)
	next = a.health.Observe(set.Name, attempt, population, current.Step, a.Clock.Now())
	return min(next, maxHealthWait)
}
