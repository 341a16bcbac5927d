package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/operator/runs"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// healthInterval is the time from the end of a check to the next check. A check uses the result of the
	// last probe of Temporal. recheckInterval is the time to the next check if Temporal was unreachable during
	// the check of the workers. The failed call triggers a probe, and the next check uses the result of this
	// probe.
	healthInterval  = time.Second
	recheckInterval = 500 * time.Millisecond
	// reconnectTime is the time after an outage of Temporal in which the workers may reconnect. During this
	// time, faults of the workers are not reported.
	reconnectTime = 10 * time.Second
	// reportTimeout limits a write of the Lease. forbiddenInterval is the time to the next check if the
	// operator has no permission to write the Lease, for example because the ClusterRole of the new version
	// is not applied yet.
	reportTimeout     = 5 * time.Second
	forbiddenInterval = time.Minute
	// repeatInterval is the time after which an unchanged report is written again. A restore of etcd, or
	// the last write of the former leader, may have replaced the report. The API server does not write to
	// etcd if the patch changes nothing.
	repeatInterval = 10 * time.Second
)

// health reports in the Lease of the operator whether Temporal and the workers respond (SPEC §8.10). The
// kubectl plugin reads this Lease, so users of the plugin need no access to Temporal. The report is valid as
// long as the operator renews the Lease. Only the leader writes the report.
type health struct {
	client client.Client
	runs   *runs.Client
	lease  *coordinationv1.Lease
	clock  clock.Clock
	log    logr.Logger
	// reported is the fault that was written to the Lease at reportedAt. reported is nil before the first
	// write.
	reported   *runs.Fault
	reportedAt time.Time
	// workerInterval is the time between two checks of the workers while no fault is reported. checkedAt is
	// the time of the last check of the workers.
	workerInterval time.Duration
	checkedAt      time.Time
	// workersErr is the error of the last query of the workers, or nil. After an error, the state of the
	// workers is unknown until the next query.
	workersErr error
	// unavailableAt is the time at which Temporal was last unavailable.
	unavailableAt time.Time
}

func newHealth(direct client.Client, temporal *runs.Client, o Options) *health {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: o.SystemNamespace, Name: name}}
	return &health{client: direct, runs: temporal, lease: lease, workerInterval: o.WorkerCheckInterval, clock: clock.RealClock{}, log: o.Logger.WithName("health")}
}

// Start implements manager.Runnable.
func (h *health) Start(ctx context.Context) error {
	timer := h.clock.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C():
		}
		timer.Reset(h.check(ctx))
	}
}

// check determines the fault of Temporal or of the workers, reports the fault if a report is due, and returns
// the time to the next check.
func (h *health) check(ctx context.Context) time.Duration {
	var workers runs.Fault
	healthy := h.reported != nil && *h.reported == (runs.Fault{})
	if !healthy || h.clock.Since(h.checkedAt) >= h.workerInterval {
		h.checkedAt = h.clock.Now()
		workers, h.workersErr = h.runs.Workers(ctx)
	}
	err := h.workersErr
	found, known := h.judge(workers, err, h.runs.AwaitProbe(ctx), h.clock.Now())
	// After Temporal has responded to all probes for reconnectTime, the report of an outage is replaced by
	// found, which is the zero value.
	known = known || h.clock.Since(h.unavailableAt) >= reconnectTime && h.reportsOutage(ctx)
	if found != workers || temporal.IsUnreachable(err) || temporal.IsNotFound(err) {
		h.checkedAt = time.Time{} // The workers may still reconnect, so the next check queries the workers again.
	}
	switch {
	case !known && temporal.IsUnreachable(err):
		return recheckInterval
	case !known || ctx.Err() != nil || !h.due(found):
		return healthInterval
	}
	if err := h.report(ctx, found); err != nil {
		h.log.Info("cannot report in the Lease; retrying", "cause", err.Error())
		return retryInterval(err)
	}
	return healthInterval
}

// due reports whether to write found to the Lease, because the fault has changed, or because the last
// report is older than repeatInterval.
func (h *health) due(found runs.Fault) bool {
	return h.reported == nil || *h.reported != found || h.clock.Since(h.reportedAt) >= repeatInterval
}

// reportsOutage reports whether the Lease contains the report of an outage of Temporal, which the former
// leader may have written. If the last report of this operator is not about an outage, reportsOutage returns
// false without a read of the Lease.
func (h *health) reportsOutage(ctx context.Context) bool {
	if h.reported != nil && h.reported.Reason != v1alpha1.ReasonTemporalUnavailable {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	lease := h.lease.DeepCopy()
	if err := h.client.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
		return false // the next check reads the Lease again
	}
	return strings.HasPrefix(lease.Annotations[v1alpha1.FaultAnnotation], v1alpha1.ReasonTemporalUnavailable+": ")
}

// judge returns the fault to report. unavailable is the result of the probe of Temporal. If known is false,
// Temporal responds to the probe, but the query of the workers failed with err. In this case, check decides
// whether to keep the last report.
func (h *health) judge(workers runs.Fault, err, unavailable error, now time.Time) (found runs.Fault, known bool) {
	switch {
	case unavailable != nil && !runs.IsThrottled(unavailable):
		h.unavailableAt = now
		return runs.Fault{Reason: v1alpha1.ReasonTemporalUnavailable, Message: unavailable.Error()}, true
	case err != nil:
		return runs.Fault{}, false
	case now.Sub(h.unavailableAt) < reconnectTime:
		return runs.Fault{}, true
	}
	return workers, true
}

// retryInterval returns the time to the next check after the write of a report failed with err.
func retryInterval(err error) time.Duration {
	if apierrors.IsForbidden(err) {
		return forbiddenInterval
	}
	return healthInterval
}

// report writes the fault found into an annotation of the Lease. If found is the zero value, report removes
// the annotation.
func (h *health) report(ctx context.Context, found runs.Fault) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	var value any // null removes the annotation
	if found != (runs.Fault{}) {
		value = found.Reason + ": " + found.Message
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.FaultAnnotation: value}}})
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if err := h.client.Patch(ctx, h.lease.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patch Lease %s/%s: %w", h.lease.Namespace, h.lease.Name, err)
	}
	h.reported, h.reportedAt = &found, h.clock.Now()
	return nil
}
