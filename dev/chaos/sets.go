package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	sdk "go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// batchTime is the time for which a batch may continue after a pause is confirmed, because a worker may be
	// disconnected from Temporal.
	batchTime         = 30 * time.Second
	attemptOfTemporal = 3 * time.Second
)

func (w *fixture) disturbSet(ctx context.Context, f Fault) error {
	switch f.Kind {
	case Pause:
		return w.editFor(ctx, f, strategy("paused", "true"), strategy("paused", "false"))
	case Bad:
		return w.editFor(ctx, f, image(f.Target, "bad"), image(f.Target, f.Value))
	case Remake:
		return w.remake(ctx, f)
	case PauseRun:
		return w.pauseRun(ctx, f)
	}
	return w.edit(ctx, f.Target, change(f)...)
}

// change returns the operations of a fault that edits a SidecarSet and has no duration.
func change(f Fault) []string {
	switch f.Kind {
	case Image:
		return []string{image(f.Target, f.Value)}
	case Window:
		return []string{strategy("maxUnavailable", number(f.Value))}
	case Partition:
		return []string{strategy("partition", number(f.Value))}
	case Env:
		return []string{container("env", fmt.Sprintf(`[{"name":"CHAOS","value":%q}]`, f.Value))}
	}
	priority, scatter := "null", "null"
	switch f.Value {
	case "priority":
		priority = `{"weightPriority":[{"weight":50,"matchSelector":{"matchLabels":{"app":"web"}}}]}`
	case "scatter":
		scatter = `[{"key":"app","value":"*"}]`
	}
	return []string{strategy("priorityStrategy", priority), strategy("scatterStrategy", scatter)}
}

// image, container and strategy return an operation of a JSON patch. value is JSON.
func image(set, tag string) string { return container("image", fmt.Sprintf(`"side-%s:%s"`, set, tag)) }

func container(field, value string) string {
	return fmt.Sprintf(`{"op":"add","path":"/spec/containers/0/%s","value":%s}`, field, value)
}

func strategy(field, value string) string {
	return fmt.Sprintf(`{"op":"add","path":"/spec/updateStrategy/%s","value":%s}`, field, value)
}

// number returns a number or a percentage as JSON.
func number(value string) string {
	if value[len(value)-1] == '%' {
		return fmt.Sprintf("%q", value)
	}
	return value
}

func (w *fixture) get(ctx context.Context, name string) (*v1alpha1.SidecarSet, error) {
	set := &v1alpha1.SidecarSet{}
	return set, w.Kube.Get(ctx, types.NamespacedName{Name: name}, set)
}

// patch applies the operations of a JSON patch to a SidecarSet.
func (w *fixture) patch(ctx context.Context, set string, operations ...string) error {
	return w.Kube.Patch(ctx, newSet(set, ""), client.RawPatch(types.JSONPatchType, []byte("["+strings.Join(operations, ",")+"]")))
}

// edit patches a SidecarSet. edit retries after each error, because another fault may have deleted the
// SidecarSet.
func (w *fixture) edit(ctx context.Context, set string, operations ...string) error {
	return w.insist(ctx, func(ctx context.Context) error { return w.patch(ctx, set, operations...) })
}

// editFor applies one operation at the start of a fault, and another operation at the end.
func (w *fixture) editFor(ctx context.Context, f Fault, begin, end string) error {
	err := w.edit(ctx, f.Target, begin)
	last(ctx, f)
	return errors.Join(err, w.edit(ctx, f.Target, end))
}

// remake deletes a SidecarSet and recreates the SidecarSet with the same content. The pods of the SidecarSet
// are not deleted.
func (w *fixture) remake(ctx context.Context, f Fault) error {
	var set *v1alpha1.SidecarSet
	err := w.insist(ctx, func(ctx context.Context) (err error) {
		if set, err = w.get(ctx, f.Target); err != nil {
			return err
		}
		return w.Kube.Delete(ctx, set.DeepCopy())
	})
	if err != nil {
		return err
	}
	last(ctx, f)
	again := newSet(f.Target, "")
	again.Spec = set.Spec
	return w.create(ctx, again)
}

// create creates set, unless a SidecarSet with the same name exists.
func (w *fixture) create(ctx context.Context, set *v1alpha1.SidecarSet) error {
	return w.insist(ctx, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(w.Kube.Create(ctx, set.DeepCopy()))
	})
}

// pauseRun pauses the run if a run is open, and resumes the run at the end of the fault. After the answer to
// the pause, a batch in progress may continue for batchTime. After batchTime, the observer reports every
// upgrade of a pod as a violation.
func (w *fixture) pauseRun(ctx context.Context, f Fault) error {
	var set *v1alpha1.SidecarSet
	err := w.insist(ctx, func(ctx context.Context) (err error) {
		set, err = w.get(ctx, f.Target)
		return err
	})
	if err != nil {
		return err
	}
	await := func(until time.Time, done func(context.Context) bool) bool {
		return wait.PollUntilContextTimeout(ctx, applyAgain, time.Until(until), true, func(ctx context.Context) (bool, error) {
			attempt, cancel := context.WithTimeout(ctx, attemptOfTemporal)
			defer cancel()
			return done(attempt), nil
		}) == nil
	}
	run, end := &pausedRun{temporal: w.Temporal, id: protocol.WorkflowID(set.Name, set.UID)}, time.Now().Add(f.For)
	if await(end, run.pause) {
		await(time.Now().Add(batchTime), func(ctx context.Context) bool { return run.isOver(ctx) || run.isPaused(ctx) })
		resumed := w.observer.Paused(f.Target)
		// A run without pods to upgrade ends even if the run is paused.
		await(end, run.isOver)
		resumed()
	}
	return w.resume(ctx, f.Target)
}

// pausedRun is a run that chaos pauses.
type pausedRun struct {
	temporal sdk.Client
	// id is the workflow ID. first is the ID of the first run in the chain of the paused run.
	id, first string
}

// pause sends the pause like the kubectl plugin, and reports whether the run answered.
func (r *pausedRun) pause(ctx context.Context) bool {
	if r.temporal.SignalWorkflow(ctx, r.id, "", protocol.PauseSignal, protocol.Pause{By: "chaos"}) != nil {
		return false
	}
	handle, err := r.temporal.UpdateWorkflow(ctx, sdk.UpdateWorkflowOptions{
		WorkflowID: r.id, UpdateName: protocol.PauseUpdate, Args: []any{protocol.Pause{By: "chaos", Sent: true}},
		WaitForStage: sdk.WorkflowUpdateStageCompleted,
	})
	if err != nil || handle.Get(ctx, nil) != nil {
		return false
	}
	run, err := r.temporal.DescribeWorkflowExecution(ctx, r.id, handle.RunID())
	r.first = run.GetWorkflowExecutionInfo().GetFirstRunId()
	return err == nil
}

// isPaused reports whether the run is paused and has no batch in progress.
func (r *pausedRun) isPaused(ctx context.Context) bool {
	var status protocol.RolloutStatus
	answer, err := r.temporal.QueryWorkflow(ctx, r.id, "", protocol.StatusQuery)
	return err == nil && answer.Get(&status) == nil && status.Pause != nil && status.Phase == protocol.PhasePaused
}

// isOver reports whether the paused run has ended, or a later run has replaced the paused run. If Temporal does
// not respond, isOver returns false.
func (r *pausedRun) isOver(ctx context.Context) bool {
	run, err := r.temporal.DescribeWorkflowExecution(ctx, r.id, "")
	return err == nil && (run.WorkflowExecutionInfo.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING || run.WorkflowExecutionInfo.FirstRunId != r.first)
}

// resume resumes the run of a SidecarSet, and returns when the status shows no pause. If a run ends while the
// run is paused, the run of the next generation starts paused. The next run may not be open yet, so resume
// retries.
func (w *fixture) resume(ctx context.Context, name string) error {
	return w.insist(ctx, func(ctx context.Context) error {
		set, err := w.get(ctx, name)
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		err = w.Temporal.SignalWorkflow(ctx, protocol.WorkflowID(set.Name, set.UID), "", protocol.ResumeSignal, protocol.Pause{By: "chaos"})
		if err != nil && !temporal.IsNotFound(err) {
			return err
		}
		if set.Status.ObservedGeneration != set.Generation || set.Status.Rollout != nil && set.Status.Rollout.Pause != nil {
			return fmt.Errorf("the rollout of SidecarSet %s is paused, or its status is old: %+v", name, set.Status.Rollout)
		}
		return nil
	})
}
