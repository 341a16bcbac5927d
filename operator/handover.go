package operator

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// patience is how long pods may wait for their upgrade before Temporal is
// asked whether a run is open at all. It is longer than the cache lags behind
// the end of a run.
const patience = 5 * time.Second

// handedOver tells whether the set's generation is with Temporal.
func handedOver(set *v1alpha1.SidecarSet) bool {
	return set.Status.Rollout != nil && set.Status.Rollout.Generation == set.Generation
}

// handOver gives each generation its run, once; and another when work turned
// up after the run ended, such as pods created from a pinned old revision.
func (r *reconciler) handOver(ctx context.Context, set *v1alpha1.SidecarSet, seen observation) (reconcile.Result, error) {
	if r.engine.unreachable() {
		// The engine has every set looked at once it answers again.
		return reconcile.Result{}, nil
	}
	if !handedOver(set) {
		return reconcile.Result{}, r.handOverGeneration(ctx, set, seen)
	}
	if len(seen.plan.Pods) == 0 && seen.plan.Counts.Migrating == 0 {
		r.handovers.settled(set.Name)
		return reconcile.Result{}, nil
	}
	if left := patience - r.handovers.waitedFor(set.Name, r.now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	open, held, err := r.engine.openRun(ctx, reference(set))
	if err != nil {
		return reconcile.Result{}, err
	}
	if r.handovers.hold(set.Name, held) {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	r.handovers.lookedAt(set.Name)
	if open {
		return reconcile.Result{RequeueAfter: patience}, nil
	}
	if err := r.engine.handOver(ctx, reference(set), set.Generation); err != nil {
		return reconcile.Result{}, err
	}
	r.tell(set, []announcement{{corev1.EventTypeNormal, eventRolloutRestarted,
		fmt.Sprintf("generation %d has pods to upgrade and no open run: %s", set.Generation, seen.plan.Message)}})
	return reconcile.Result{RequeueAfter: patience}, nil
}

func (r *reconciler) handOverGeneration(ctx context.Context, set *v1alpha1.SidecarSet, seen observation) error {
	if !r.handovers.knows(set) {
		if err := r.engine.handOver(ctx, reference(set), set.Generation); err != nil {
			return err
		}
		r.handovers.remember(set)
		log.FromContext(ctx).Info("handed over to Temporal", "generation", set.Generation, "plan", seen.plan.Message)
	}
	before := set.DeepCopy()
	id := protocol.WorkflowID(set.Name, set.UID)
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: set.Generation, WorkflowID: id, URL: r.engine.url(id)}
	if err := r.writeStatus(ctx, before, set); err != nil {
		return err
	}
	note := fmt.Sprintf("generation %d, workflow %s: %s", set.Generation, id, seen.plan.Message)
	if set.Status.Rollout.URL != "" {
		note += "; see " + set.Status.Rollout.URL
	}
	r.tell(set, []announcement{{corev1.EventTypeNormal, eventRolloutStarted, note}})
	return nil
}

func reference(set *v1alpha1.SidecarSet) protocol.SetReference {
	return protocol.SetReference{Name: set.Name, UID: set.UID}
}

// handovers is what status does not hold: a hand-over whose status write has
// not come back through the cache yet, and since when pods wait. Losing it with
// the process is harmless: a second hand-over changes nothing.
type handovers struct {
	mu   sync.Mutex
	sets map[string]handover
}

type handover struct {
	uid        types.UID
	generation int64
	// waitingSince is zero while no pod waits for its upgrade.
	waitingSince time.Time
	// held says that pods wait because somebody paused the run by signal, once
	// it was asked.
	held, asked bool
}

func newHandovers() *handovers { return &handovers{sets: map[string]handover{}} }

func (h *handovers) knows(set *v1alpha1.SidecarSet) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.sets[set.Name]
	return last.uid == set.UID && last.generation == set.Generation
}

func (h *handovers) remember(set *v1alpha1.SidecarSet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.sets[set.Name]
	if last.uid != set.UID {
		last = handover{uid: set.UID}
	}
	last.generation, last.waitingSince = set.Generation, time.Time{}
	h.sets[set.Name] = last
}

func (h *handovers) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sets, name)
}

// waitedFor is how long pods of the set have waited, as far as one has looked.
func (h *handovers) waitedFor(name string, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.sets[name]
	if last.waitingSince.IsZero() {
		last.waitingSince = now
		h.sets[name] = last
	}
	return now.Sub(last.waitingSince)
}

// settled notes that no pod waits.
func (h *handovers) settled(name string) {
	h.hold(name, false)
	h.lookedAt(name)
}

// lookedAt has pods wait anew.
func (h *handovers) lookedAt(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.sets[name]
	last.waitingSince = time.Time{}
	h.sets[name] = last
}

// hold notes whether the set's run is held, and tells whether that is news.
func (h *handovers) hold(name string, held bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.sets[name]
	news := last.held != held
	last.held, last.asked = held, true
	h.sets[name] = last
	return news
}

// held tells whether the set's run is held. Until that is known, it is what the
// set's status says.
func (h *handovers) held(set *v1alpha1.SidecarSet) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.sets[set.Name]; last.asked {
		return last.held
	}
	return !set.Spec.UpdateStrategy.Paused && reasonAndMessage(set, v1alpha1.ConditionProgressing).reason == v1alpha1.ReasonPaused
}
