package activities

import (
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// maxHealthWait is the longest time between two observations while a pod may soon count as not ready for too
// long. Each worker observes the pods on its own. Any worker may make the next plan, so every worker must
// have recent observations.
const maxHealthWait = time.Minute

// observeHealth marks the pods of population that are not ready for too long, or whose app restarted, if the
// policy counts such pods as failed. next is the time until the next observation, or 0 if no observation is
// due.
func (a *Activities) observeHealth(set *v1alpha1.SidecarSet, population []rollout.Pod, current *protocol.Stage) (next time.Duration) {
	if !stage.ObservesHealth(current) {
		return 0
	}
	attempt := set.Annotations[v1alpha1.HashAnnotation] + "/" + current.Retried.UTC().Format(time.RFC3339)
	next = a.health.Observe(set.Name, attempt, population, current.Step, a.Clock.Now())
	return min(next, maxHealthWait)
}
