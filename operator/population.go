package operator

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/podstate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
)

// missingTimeout is the time for which the cache may lack the namespace of a pod before status reports the
// namespace.
const missingTimeout = time.Minute

// missingNamespaces maps the name of a SidecarSet to the time at which the cache first lacked a namespace of
// its pods.
type missingNamespaces struct{ sync.Map }

// check returns an error while the cache lacks a namespace for less than missingTimeout. The error requeues
// the SidecarSet without a change of status, because the cache usually receives a new namespace soon. After
// missingTimeout, check returns nil, so that status reports the missing namespace.
func (m *missingNamespaces) check(p *pass) error {
	if !apierrors.IsNotFound(p.invalid) {
		m.Delete(p.set.Name)
		return nil
	}
	since, _ := m.LoadOrStore(p.set.Name, p.now)
	if p.now.Sub(since.(time.Time)) < missingTimeout {
		return p.invalid
	}
	return nil
}

// ignore is like check, but the missing namespace does not make the SidecarSet invalid. A pod without sidecars
// in a deleted namespace must not stop rollouts.
func (m *missingNamespaces) ignore(p *pass) error {
	if err := m.check(p); err != nil {
		return err
	}
	if apierrors.IsNotFound(p.invalid) {
		p.invalid = nil
	}
	return nil
}

// populationStep plans the rollout, and finds broken pods.
type populationStep struct {
	client  client.Reader
	freezes *freezes
	// fleet is set in a member of a fleet, whose rollouts need permits.
	fleet   bool
	cache   rollout.PopulationCache
	missing missingNamespaces
}

func (s *populationStep) reconcile(ctx context.Context, p *pass) error {
	p.invalid = s.observe(ctx, p)
	return s.missing.check(p)
}

func (s *populationStep) forget(name string) {
	s.cache.Forget(name)
	s.missing.Delete(name)
}

func (s *populationStep) observe(ctx context.Context, p *pass) error {
	set, current, err := planned(p)
	if err != nil {
		return err
	}
	matched, err := s.cache.Population(set, p.pods, kube.NamespaceLabels(ctx, s.client))
	if err != nil {
		return err
	}
	if p.unreadable, err = s.cache.Unreadable(set, p.pods, kube.NamespaceLabels(ctx, s.client)); err != nil {
		return err
	}
	if p.plan, err = rollout.NextInStage(set, matched, nil, current); err != nil {
		return err
	}
	if p.failure, err = rollout.Failure(set, matched, &p.plan, current); err != nil {
		return err
	}
	p.unhealthy = stage.ObservesHealth(current) && p.plan.Counts.Converging > 0
	if err := s.freeze(ctx, p, current); err != nil {
		return err
	}
	version, err := podstate.NewVersion(set)
	if err != nil {
		return err
	}
	p.broken = rollout.FindBroken(version, matched)
	if p.quarantine == nil {
		p.endToRecord, err = s.findEnd(p, version, matched)
	}
	return err
}

// planned returns the SidecarSet and the stage of the plan. During a rollback, the SidecarSet has the content
// of the target revision. If the target revision is missing, the plan has no pods to upgrade.
func planned(p *pass) (*v1alpha1.SidecarSet, *protocol.Stage, error) {
	current := stage.ForStart(p.set)
	if p.target == nil || current == nil || current.Quarantine == nil {
		return p.set, stage.OfStatus(p.set), nil
	}
	set, err := stage.Target(p.set, p.target)
	if err != nil {
		return nil, nil, err
	}
	confirmed := *current
	confirmed.Generation = set.Generation
	return set, &confirmed, nil
}

// freeze removes the upgrades from the plan while the rollout needs a permit of the fleet, while a
// RolloutFreeze selects the SidecarSet, or while no window of the RolloutPolicy is open.
func (s *populationStep) freeze(ctx context.Context, p *pass, current *protocol.Stage) error {
	if s.fleet && p.quarantine == nil && !fleet.Permitted(p.set, nil) && fleet.Hold(&p.plan) {
		p.frozenReason = v1alpha1.ReasonAwaitingPermit
		return nil
	}
	all, err := s.freezes.list(ctx)
	if err != nil {
		return err
	}
	if freeze := stage.FreezeFor(p.set, current, all, p.now); freeze != nil {
		p.plan.Freeze(stage.FreezeMessage(freeze))
		p.frozenReason = v1alpha1.ReasonFrozen
		if freeze.Spec.Until != nil {
			p.frozenUntil = &freeze.Spec.Until.Time
		}
		return nil
	}
	closed, opens, err := stage.Closed(current, p.now)
	if err != nil || closed == "" {
		return err
	}
	p.plan.Freeze(closed)
	p.frozenReason, p.frozenUntil = v1alpha1.ReasonOutsideWindow, opens
	return nil
}

// findEnd reports whether the pods show the end of a rollout that status does not record yet. findEnd also
// considers pods that no longer match. findEnd ignores pods that became unavailable after the end of the run,
// because an app may fail before the end is recorded, or while the operator is stopped.
func (s *populationStep) findEnd(p *pass, version *podstate.Version, matched []rollout.Pod) (bool, error) {
	if !rollout.EndToRecord(p.set, version, &p.plan, matched) {
		return false, nil
	}
	if p.plan.MayHaveEnded() {
		return true, nil
	}
	_, unavailable, err := s.cache.CountUnavailable(p.set, p.pods)
	return unavailable == 0, err
}
