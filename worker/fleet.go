package worker

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/outrigger/outrigger/activities"
)

// boundFleet has the workers of the cluster elect the one that upgrades pods, if
// there is a bound on all of them.
func (h *host) boundFleet(mgr manager.Manager, hosted *activities.Activities) error {
	if h.options.MaxUnavailablePods == 0 {
		return nil
	}
	leadership, err := newLeadership(mgr.GetConfig(), h.options.SystemNamespace, h.options.Temporal.Identity)
	if err != nil {
		return err
	}
	if hosted.Writer, err = leadership.writer(mgr); err != nil {
		return err
	}
	hosted.Fleet = activities.NewFleetBudget(h.options.MaxUnavailablePods, h.options.MaxConcurrentWrites, leadership.held, hosted.Clock, hosted.Changes, hosted.Metrics)
	h.lead = func(ctx context.Context, upgrade func(context.Context) error) error {
		return leadership.run(ctx, func(leading context.Context) {
			h.log.Info("this worker upgrades pods", "lease", leadership.Describe(), "maxUnavailablePods", h.options.MaxUnavailablePods)
			err := leadership.settled(leading)
			if err == nil {
				err = hosted.Lead(leading, upgrade)
			}
			if err != nil && leading.Err() == nil {
				h.log.Error(err, "this worker leads, but cannot upgrade pods")
				return
			}
			h.log.Info("this worker upgrades no more pods", "lease", leadership.Describe())
		})
	}
	return nil
}
