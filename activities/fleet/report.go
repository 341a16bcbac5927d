package fleet

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/api/enums/v1"
	sdk "go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// reportInterval is the time between two lists of the SidecarSets.
	reportInterval = 2 * time.Second
	// awaitingInterval is the time after which the member queries the fleet again about content that needs a
	// permit.
	awaitingInterval = 5 * time.Minute
	// announceInterval is the time after which the member announces the cluster again, and queries the fleet
	// again about content that needs no permit, because the fleet may have lost data.
	announceInterval = time.Hour
	// returnedInterval replaces awaitingInterval during returnedTime after an outage of the connection or a
	// suspension of the process, because the fleet may have skipped the member meanwhile.
	returnedInterval = 20 * time.Second
	returnedTime     = time.Minute
	// frozenTime is the minimum time between two iterations of Run after which the process counts as suspended.
	frozenTime = 30 * time.Second
)

// Reporter announces a member, and reports the content of its SidecarSets to the fleet.
type Reporter struct {
	*Member
	// Cache lists SidecarSets from an informer.
	Cache client.Reader
	Self  protocol.FleetMember
	Log   logr.Logger

	Connection *Connection

	// reported contains the last report about each SidecarSet.
	reported map[types.UID]report
	down     bool
	// failed is set if a report in this iteration of Run failed. checkedAt is the time of the last check of the
	// connection.
	failed    bool
	checkedAt time.Time
	// endedAt is the end of the last iteration of Run. returnedAt is the time of the end of the last outage of
	// the connection, or of the last suspension of the process.
	endedAt, returnedAt time.Time
	// told is the fault of the connection that tell last reported to the runs without a permit. toldAt is the
	// time of this report.
	told   string
	toldAt time.Time
}

// report is the last report about a SidecarSet.
type report struct {
	content protocol.FleetContent
	at      time.Time
	// own is set if a user of the cluster permitted the content.
	own bool
}

// Run announces the member and reports the content of the SidecarSets until ctx ends. Run retries after
// errors, and returns nil.
func (r *Reporter) Run(ctx context.Context) error {
	r.reported = map[types.UID]report{}
	var announced time.Time
	ticker := r.Clock.NewTicker(reportInterval)
	defer ticker.Stop()
	for {
		var err error
		r.failed = false
		r.begin()
		if announced.IsZero() || r.Clock.Since(announced) >= announceInterval || r.returnedAt.After(announced) {
			err = r.send(ctx, protocol.FleetRegistryID, protocol.AnnounceSignal, r.Self, protocol.FleetRegistryWorkflow, protocol.FleetRegistry{})
			if err == nil {
				announced = r.Clock.Now()
			}
		}
		sets, listed := r.completed(ctx)
		if err == nil {
			err = listed
		}
		if err == nil {
			err = r.reportAll(ctx, sets)
		}
		r.check(ctx)
		r.tell(ctx, sets)
		if err != nil && !r.down && ctx.Err() == nil {
			r.Log.Info("cannot report to the fleet; retrying", "cause", temporal.WithoutSecrets(err))
		}
		r.down, r.endedAt = err != nil, r.Clock.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// begin sets returnedAt if the process was suspended between the last iteration of Run and this iteration. The
// duration of an iteration does not count, because an iteration with many SidecarSets may take a long time.
func (r *Reporter) begin() {
	if now := r.Clock.Now(); !r.endedAt.IsZero() && now.Sub(r.endedAt) >= frozenTime {
		r.returnedAt = now
	}
}

// completed returns the valid SidecarSets that are not being deleted, completed with defaults.
func (r *Reporter) completed(ctx context.Context) (sets []*v1alpha1.SidecarSet, err error) {
	var all v1alpha1.SidecarSetList
	if err := r.Cache.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list SidecarSets from the cache: %w", err)
	}
	for i := range all.Items {
		if all.Items[i].DeletionTimestamp != nil {
			continue
		}
		// Invalid SidecarSets are skipped, because the operator reports the errors of these SidecarSets.
		if completed, err := revision.Completed(&all.Items[i]); err == nil {
			sets = append(sets, completed)
		}
	}
	return sets, nil
}

// reportAll reports the content of sets, and deletes the records of reports about other SidecarSets.
func (r *Reporter) reportAll(ctx context.Context, sets []*v1alpha1.SidecarSet) error {
	listed := make(map[types.UID]bool, len(sets))
	for _, set := range sets {
		listed[set.UID] = true
	}
	maps.DeleteFunc(r.reported, func(uid types.UID, _ report) bool { return !listed[uid] })
	for _, set := range sets {
		if err := r.report(ctx, set); err != nil {
			return err
		}
	}
	return nil
}

// report sends the content of a completed SidecarSet if the content has changed or must be confirmed, and the
// fleet has not recorded the content.
func (r *Reporter) report(ctx context.Context, set *v1alpha1.SidecarSet) error {
	hash := set.Annotations[v1alpha1.HashAnnotation]
	content := protocol.FleetContent{
		Member: r.Self.UID, Hash: hash, Settled: fleet.Permitted(set, nil),
		Good: set.Status.IsLastGood(hash), NotUpdate: set.Spec.UpdateStrategy.Type == v1alpha1.NotUpdateSidecarSetStrategyType,
	}
	last, now := r.reported[set.UID], r.Clock.Now()
	interval := r.confirmInterval(content.Settled, now)
	_, unanswered := r.unanswered.LoadAndDelete(set.Name)
	permit := fleet.Recorded(set)
	own := permit != nil && permit.Attempt == 0
	if last.content == content && now.Sub(last.at) < interval && !unanswered && own == last.own {
		return nil
	}
	known, err := r.inform(ctx, set, content, own)
	if err != nil || !known {
		if unanswered {
			r.unanswered.Store(set.Name, true)
		}
		return err
	}
	r.reported[set.UID] = report{content, now, own}
	return nil
}

// inform sends content unless the fleet has recorded content, and reports whether the fleet has content
// afterwards. own is set if a user of the cluster permitted content.
func (r *Reporter) inform(ctx context.Context, set *v1alpha1.SidecarSet, content protocol.FleetContent, own bool) (known bool, err error) {
	if own {
		if content.Own, err = r.permittedBy(ctx, set.Name); err != nil {
			return false, err
		}
	}
	if known, err = r.known(ctx, set.Name, content); err != nil || known {
		return known, err
	}
	if current, err := r.isCurrent(ctx, set, content.Settled); err != nil || !current {
		return false, err
	}
	state := protocol.FleetState{Set: set.Name, Phase: protocol.FleetRolling}
	return true, r.send(ctx, protocol.FleetWorkflowID(set.Name), protocol.ContentSignal, content, protocol.FleetWorkflow, state)
}

// isCurrent reports whether the SidecarSet in the API server has the generation of cached and the same value of
// settled. The cache of a new process may be stale. Older content would supersede the current content of the
// fleet, and an older status would restart the rollout in this cluster.
func (r *Reporter) isCurrent(ctx context.Context, cached *v1alpha1.SidecarSet, settled bool) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var live v1alpha1.SidecarSet
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(cached), &live); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if live.UID != cached.UID || live.Generation != cached.Generation {
		return false, nil
	}
	completed, err := revision.Completed(&live)
	if err != nil {
		return false, err
	}
	return fleet.Permitted(completed, nil) == settled, nil
}

// confirmInterval returns the time after which the member queries the fleet again about reported content. settled
// is set if the content needs no permit.
func (r *Reporter) confirmInterval(settled bool, now time.Time) time.Duration {
	switch {
	case settled:
		return announceInterval
	case !r.returnedAt.IsZero() && now.Sub(r.returnedAt) < returnedTime:
		return returnedInterval
	}
	return awaitingInterval
}

// permittedBy returns the user that permitted the content of a SidecarSet in this cluster. If Temporal has
// deleted the run with the permit, permittedBy returns a placeholder instead of the name.
func (r *Reporter) permittedBy(ctx context.Context, set string) (*protocol.Approval, error) {
	local, err := r.read(ctx, set)
	if err != nil {
		return nil, err
	}
	if permit := local.status.Permit; permit != nil {
		return &protocol.Approval{By: permit.By, Reason: permit.Reason}, nil
	}
	return &protocol.Approval{By: "a user of the cluster"}, nil
}

// known reports whether the open workflow of the SidecarSet in the fleet has recorded the content of the cluster.
// Without an open workflow, known returns false.
func (r *Reporter) known(ctx context.Context, set string, content protocol.FleetContent) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := r.Fleet.QueryWorkflowWithOptions(ctx, &sdk.QueryWorkflowWithOptionsRequest{
		WorkflowID: protocol.FleetWorkflowID(set), QueryType: protocol.ClusterQuery, Args: []any{r.Self.UID},
		QueryRejectCondition: enums.QUERY_REJECT_CONDITION_NOT_OPEN,
	})
	if temporal.IsNotFound(err) || err == nil && answer.QueryRejected != nil {
		return false, nil
	}
	var cluster *protocol.FleetCluster
	if err == nil {
		err = answer.QueryResult.Get(&cluster)
	}
	if err != nil {
		if !temporal.IsSilent(ctx, err) { // a fleet worker that does not respond is not a fault of the connection
			r.failed = true
			r.Connection.record(err)
		}
		return false, fmt.Errorf("read the cluster in workflow %s: %w", protocol.FleetWorkflowID(set), err)
	}
	return fleet.Knows(cluster, content), nil
}

// send sends a signal to a workflow of the fleet, and starts the workflow if the workflow is not open.
func (r *Reporter) send(ctx context.Context, id, signal string, payload any, workflow string, input any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	options := sdk.StartWorkflowOptions{ID: id, TaskQueue: protocol.FleetTaskQueue}
	if _, err := r.Fleet.SignalWithStartWorkflow(ctx, id, signal, payload, options, workflow, input); err != nil {
		r.failed = true
		r.Connection.record(err)
		return fmt.Errorf("send %s to workflow %s: %w", signal, id, err)
	}
	return nil
}
