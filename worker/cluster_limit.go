package worker

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/outrigger/outrigger/activities"
)

// electLimiter sets up the election of the worker that upgrades pods, if there is a cluster-wide
// limit.
func (h *host) electLimiter(mgr manager.Manager, hosted *activities.Activities) error {
	if h.options.MaxUnavailablePods == 0 {
		return nil
	}
	leadership, err := newLeadership(mgr.GetConfig(), h.options.SystemNamespace, h.options.Temporal.Identity)
	if err != nil {
		return err
	}
	hosted.Limit = activities.NewClusterLimit(h.options.MaxUnavailablePods, h.options.MaxConcurrentPatches, leadership.held, hosted.Clock, hosted.Changes, hosted.Metrics)
	h.lead = func(ctx context.Context, upgrade func(context.Context) error) error {
		return leadership.run(ctx, func(leading context.Context) {
			h.log.Info("this worker leads and upgrades pods", "lease", leadership.Describe(), "maxUnavailablePods", h.options.MaxUnavailablePods)
			err := leadership.waitForOthers(leading)
			if err == nil {
				err = hosted.Lead(leading, upgrade)
			}
			if err != nil && leading.Err() == nil {
				h.log.Error(err, "this worker leads, but cannot upgrade pods")
				return
			}
			h.log.Info("this worker stops leading", "lease", leadership.Describe())
		})
	}
	return nil
}
