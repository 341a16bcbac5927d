package workflows

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/fleet"
)

const (
	// rolloutLimit limits the time of one rollout in a cluster, including pauses by users.
	rolloutLimit = 90 * 24 * time.Hour
	// memberHeartbeat is the time without a heartbeat after which the worker of a member counts as lost.
	memberHeartbeat = time.Minute
)

// Fleet rolls one SidecarSet out across many clusters (SPEC §12). A run belongs to one content. Each member
// executes the rollout in its cluster as an activity, on a task queue of the member. Package internal/fleet makes
// the decisions. After all stages, the run stays open for clusters that join. If a member reports other content,
// the run continues as new.
func Fleet(ctx workflow.Context, state protocol.FleetState) error {
	state.Rules = max(int(workflow.GetVersion(ctx, "rules of a fleet", workflow.DefaultVersion, fleet.NewestRules)), 0)
	continued := fleet.Resume(&state)
	f := &fleetRun{state: state, active: map[string]*activeMember{}, refresh: state.Rules > 0}
	f.contents, f.left = workflow.GetSignalChannel(ctx, protocol.ContentSignal), workflow.GetSignalChannel(ctx, protocol.MembersSignal)
	if err := f.handleRequests(ctx); err != nil {
		return err
	}
	for _, uid := range continued {
		if fleet.Continues(&f.state, uid) {
			f.begin(ctx, uid, protocol.FleetRolloutActivity)
		}
	}
	for {
		if f.readContents(workflow.Now(ctx)); f.superseded || hasLongHistory(ctx) {
			// The next run restarts the activities in progress.
			return workflow.NewContinueAsNewError(ctx, protocol.FleetWorkflow, f.state)
		}
		if err := f.readPlan(ctx); err != nil {
			return err
		}
		f.changed = false
		step := f.next(workflow.Now(ctx))
		for _, uid := range step.Start {
			f.begin(ctx, uid, protocol.FleetRolloutActivity)
		}
		for _, uid := range step.RollBack {
			f.begin(ctx, uid, protocol.FleetRollbackActivity)
		}
		if f.reading == nil || f.state.Phase != protocol.FleetRolling {
			f.measure(ctx, step.Measure)
		}
		f.refresh = f.refresh || step.Refresh
		if err := f.await(ctx, step.Until); err != nil {
			return err
		}
	}
}

// fleetRun is the state of one run of Fleet.
type fleetRun struct {
	state protocol.FleetState
	// contents is the channel of the reports of members. left is the channel of the signal that a member has
	// left.
	contents, left workflow.ReceiveChannel
	// active contains the activities in progress, by the uid of the cluster.
	active map[string]*activeMember
	// measuring is the measurement in progress, if any. reading is the current read of the plan, if any.
	measuring *activeMeasurement
	reading   *activeRead
	// refresh is set if the members have to be read again. changed is set if the next step may be due.
	refresh, changed, superseded bool
}

type activeMember struct{ cancel workflow.CancelFunc }

// activeRead is a read of the plan. err is the error of the read after all retries.
type activeRead struct {
	cancel workflow.CancelFunc
	err    error
}

// next returns the next step. While an activity reads the plan, the step contains only rollbacks.
func (f *fleetRun) next(now time.Time) fleet.Step {
	if f.reading != nil {
		return fleet.NextRollbacks(&f.state, now)
	}
	return fleet.Next(&f.state, now)
}

// readContents reads the reports of members. Content that supersedes other content needs a new run, but the first
// content does not need a new run.
func (f *fleetRun) readContents(now time.Time) {
	f.refresh = len(drain[struct{}](f.left)) > 0 || f.refresh
	for _, content := range drain[protocol.FleetContent](f.contents) {
		first := f.state.Hash == ""
		switch effect := fleet.Report(&f.state, content, now); {
		case effect == fleet.Superseded && !first:
			f.superseded = true
		case effect != fleet.Nothing:
			f.refresh = f.refresh || f.state.Clusters[content.Member].Stage == protocol.UnknownStage
		}
	}
}

// readPlan reads the policy at the start of the rollout, and the members at the start of each stage and once a
// new member reports content. readPlan does not wait for the result, because the registry may be unavailable for
// a long time and must not delay rollbacks and requests. Only in a run with Rules 0, which an earlier release
// started, readPlan waits for the result.
func (f *fleetRun) readPlan(ctx workflow.Context) error {
	if f.reading != nil || f.state.Planned && !f.refresh || f.state.Hash == "" {
		return f.readError()
	}
	f.refresh = false
	var plan protocol.FleetPlan
	ctx, cancel := workflow.WithCancel(ctx)
	answer := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Minute, Summary: "read the policy and the members", RetryPolicy: retryForever(),
	}), protocol.FleetPlanActivity, f.state.Set)
	if f.state.Rules == 0 {
		if err := answer.Get(ctx, &plan); err != nil {
			return fmt.Errorf("read the members of the fleet: %w", err)
		}
		f.adopt(&plan)
		return nil
	}
	self := &activeRead{cancel: cancel}
	f.reading = self
	workflow.Go(ctx, func(ctx workflow.Context) {
		err := answer.Get(ctx, &plan)
		if f.reading != self {
			return // the update retry has ended this read
		}
		if f.changed = true; err != nil {
			self.err = err
			return
		}
		f.reading = nil
		f.adopt(&plan)
	})
	return nil
}

// adopt copies a plan into the state, and cancels the activities of clusters that have left. adopt does not
// remove a member that has reported content since the start of the read, because the plan is then read again.
func (f *fleetRun) adopt(plan *protocol.FleetPlan) {
	fleet.Adopt(&f.state, plan, f.refresh)
	for _, uid := range fleet.Keys(f.active) {
		if f.state.Clusters[uid] == nil {
			f.end(uid) // the cluster has left
		}
	}
}

func (f *fleetRun) readError() error {
	if f.reading == nil || f.reading.err == nil {
		return nil
	}
	return fmt.Errorf("read the members of the fleet: %w", f.reading.err)
}

// begin starts an activity of the cluster uid, and cancels an earlier activity of the cluster.
func (f *fleetRun) begin(ctx workflow.Context, uid, activity string) {
	f.end(uid)
	working, cancel := workflow.WithCancel(ctx)
	self := &activeMember{cancel: cancel}
	f.active[uid] = self
	input := fleet.InputOf(&f.state, uid)
	options := workflow.ActivityOptions{
		TaskQueue: protocol.FleetMemberTaskQueue(uid), StartToCloseTimeout: rolloutLimit, HeartbeatTimeout: memberHeartbeat,
		RetryPolicy: retryForever(), Summary: f.state.Clusters[uid].Name,
	}
	if activity == protocol.FleetRolloutActivity {
		// A rollback has no such timeout, because a rollback waits until the cluster is reachable again.
		options.ScheduleToStartTimeout = input.Within
	}
	answer := workflow.ExecuteActivity(workflow.WithActivityOptions(working, options), activity, input)
	workflow.Go(ctx, func(ctx workflow.Context) {
		var result protocol.FleetResult
		err := answer.Get(ctx, &result)
		if f.active[uid] != self {
			return // the activity was cancelled
		}
		delete(f.active, uid)
		if err != nil {
			result = unanswered(err, input.Within)
		}
		fleet.Finish(&f.state, uid, result, workflow.Now(ctx))
		f.changed = true
	})
}

// unanswered returns the result of a cluster whose activity ended with err. If no worker of the cluster
// starts the activity within the duration within, the cluster is skipped. Any other error means that the
// rollout in the cluster has failed.
func unanswered(err error, within time.Duration) protocol.FleetResult {
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) && timeout.TimeoutType() == enums.TIMEOUT_TYPE_SCHEDULE_TO_START {
		return protocol.FleetResult{State: protocol.ClusterSkipped, Reason: fmt.Sprintf("no worker of the cluster responded within %s", within)}
	}
	return protocol.FleetResult{State: protocol.ClusterFailed, Reason: err.Error()}
}

func (f *fleetRun) end(uid string) {
	if active := f.active[uid]; active != nil {
		delete(f.active, uid)
		active.cancel()
	}
}

// await waits until a report or a request arrives, an activity ends, or the time until is reached. If until is
// zero, await has no timeout.
func (f *fleetRun) await(ctx workflow.Context, until time.Time) error {
	due := func() bool { return f.changed || f.contents.Len() > 0 || f.left.Len() > 0 }
	if until.IsZero() {
		return workflow.Await(ctx, due)
	}
	if left := until.Sub(workflow.Now(ctx)); left > 0 {
		_, err := workflow.AwaitWithTimeout(ctx, left, due)
		return err
	}
	return nil
}

// handleRequests sets the handlers of the queries status and cluster, and of the updates approve,
// abort and retry.
func (f *fleetRun) handleRequests(ctx workflow.Context) error {
	err := workflow.SetQueryHandler(ctx, protocol.StatusQuery, func() (protocol.FleetState, error) { return f.state, nil })
	return cmp.Or(err,
		workflow.SetQueryHandler(ctx, protocol.ClusterQuery, func(uid string) (*protocol.FleetCluster, error) { return f.state.Clusters[uid], nil }),
		f.handle(ctx, protocol.ApproveUpdate, func(r protocol.FleetStepRequest) error { return fleet.CheckApproval(&f.state, r) },
			func(r protocol.FleetStepRequest, now time.Time) string {
				fleet.Approve(&f.state, r.Approval, now)
				return "stage " + f.state.Spec.Stages[f.state.Stage].Name + " is approved"
			}),
		f.handle(ctx, protocol.AbortUpdate, func(r protocol.FleetStepRequest) error { return fleet.CheckAbort(&f.state, r) },
			func(r protocol.FleetStepRequest, now time.Time) string {
				fleet.Abort(&f.state, r.Approval, now)
				return "the rollout is aborted; all clusters with the content go back"
			}),
		f.handle(ctx, protocol.RetryUpdate, func(r protocol.FleetStepRequest) error { return fleet.CheckRetry(&f.state, r) },
			func(r protocol.FleetStepRequest, now time.Time) string {
				for _, uid := range fleet.Keys(f.state.Clusters) {
					f.end(uid)
				}
				if f.state.Rules > 0 && f.reading != nil {
					f.reading.cancel()
					f.reading = nil
				}
				fleet.Retry(&f.state, r.Approval, now)
				return "the rollout restarts from its first stage"
			}),
	)
}

func (f *fleetRun) handle(ctx workflow.Context, name string, check func(protocol.FleetStepRequest) error, do func(protocol.FleetStepRequest, time.Time) string) error {
	return setHandler(ctx, name,
		func(ctx workflow.Context, request protocol.FleetStepRequest) (protocol.StepResult, error) {
			message := do(request, workflow.Now(ctx))
			f.changed = true
			workflow.GetLogger(ctx).Info("fleet: "+message, "request", name, "by", request.By, "reason", request.Reason)
			return protocol.StepResult{Message: message}, nil
		},
		func(_ workflow.Context, request protocol.FleetStepRequest) error { return check(request) })
}
