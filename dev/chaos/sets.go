package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	sdk "go.temporal.io/sdk/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

func (w *world) disturbSet(ctx context.Context, f Fault) error {
	switch f.Kind {
	case Pause:
		err := w.edit(ctx, f.Target, strategy("paused", "true"))
		last(ctx, f)
		return errors.Join(err, w.edit(ctx, f.Target, strategy("paused", "false")))
	case Bad:
		err := w.edit(ctx, f.Target, image(f.Target, "bad"))
		last(ctx, f)
		return errors.Join(err, w.edit(ctx, f.Target, image(f.Target, f.Value)))
	case Remake:
		return w.remake(ctx, f)
	case PauseRun:
		return w.pauseRun(ctx, f)
	}
	return w.edit(ctx, f.Target, change(f))
}

// change is the JSON patch of a momentary edit.
func change(f Fault) string {
	switch f.Kind {
	case Image:
		return image(f.Target, f.Value)
	case Window:
		return strategy("maxUnavailable", number(f.Value))
	case Partition:
		return strategy("partition", number(f.Value))
	case Env:
		return fmt.Sprintf(`[{"op":"add","path":"/spec/containers/0/env","value":[{"name":"CHAOS","value":%q}]}]`, f.Value)
	}
	switch f.Value {
	case "priority":
		return `[{"op":"add","path":"/spec/updateStrategy/scatterStrategy","value":null},
			{"op":"add","path":"/spec/updateStrategy/priorityStrategy","value":{"weightPriority":[{"weight":50,"matchSelector":{"matchLabels":{"app":"web"}}}]}}]`
	case "scatter":
		return `[{"op":"add","path":"/spec/updateStrategy/priorityStrategy","value":null},
			{"op":"add","path":"/spec/updateStrategy/scatterStrategy","value":[{"key":"app","value":"*"}]}]`
	}
	return `[{"op":"add","path":"/spec/updateStrategy/priorityStrategy","value":null},{"op":"add","path":"/spec/updateStrategy/scatterStrategy","value":null}]`
}

func image(set, tag string) string {
	return fmt.Sprintf(`[{"op":"replace","path":"/spec/containers/0/image","value":"side-%s:%s"}]`, set, tag)
}

func strategy(field, value string) string {
	return fmt.Sprintf(`[{"op":"add","path":"/spec/updateStrategy/%s","value":%s}]`, field, value)
}

// number is an int or a percentage as JSON has it.
func number(value string) string {
	if value[len(value)-1] == '%' {
		return fmt.Sprintf("%q", value)
	}
	return value
}

// edit patches a set, also one that is about to be made again.
func (w *world) edit(ctx context.Context, set, patch string) error {
	return w.insist(ctx, func(ctx context.Context) error {
		return w.kube.Patch(ctx, newSet(set, ""), client.RawPatch(types.JSONPatchType, []byte(patch)))
	})
}

// remake deletes a set and makes it again as it was; its pods stay.
func (w *world) remake(ctx context.Context, f Fault) error {
	set := &v1alpha1.SidecarSet{}
	err := w.insist(ctx, func(ctx context.Context) error {
		if err := w.kube.Get(ctx, types.NamespacedName{Name: f.Target}, set); err != nil {
			return err
		}
		return w.kube.Delete(ctx, set.DeepCopy())
	})
	if err != nil {
		return err
	}
	last(ctx, f)
	again := newSet(f.Target, "")
	again.Spec = set.Spec
	return w.create(ctx, again)
}

// create makes a set, unless it is there.
func (w *world) create(ctx context.Context, set *v1alpha1.SidecarSet) error {
	return w.insist(ctx, func(ctx context.Context) error {
		err := w.kube.Create(ctx, set.DeepCopy())
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// pauseRun pauses the open run, if there is one, and resumes it.
func (w *world) pauseRun(ctx context.Context, f Fault) error {
	set := &v1alpha1.SidecarSet{}
	if err := w.insist(ctx, func(ctx context.Context) error {
		return w.kube.Get(ctx, types.NamespacedName{Name: f.Target}, set)
	}); err != nil {
		return err
	}
	id := protocol.WorkflowID(set.Name, set.UID)
	end := time.Now().Add(f.For)
	if w.paused(ctx, id, end) {
		w.observer.Held(f.Target)
		// A run that has nothing left to do ends, held or not.
		for !w.over(ctx, id) && time.Now().Before(end) && ctx.Err() == nil {
			time.Sleep(applyAgain)
		}
		w.observer.Resumed(f.Target)
	}
	return w.resume(ctx, id)
}

// paused asks for a pause until a run says that it is in force and nothing is in
// hand any more.
func (w *world) paused(ctx context.Context, id string, end time.Time) bool {
	asked := false
	for time.Now().Before(end) && ctx.Err() == nil {
		attempt, done := context.WithTimeout(ctx, 3*time.Second)
		if !asked {
			handle, err := w.temporal.UpdateWorkflow(attempt, sdk.UpdateWorkflowOptions{
				WorkflowID: id, UpdateName: protocol.PauseUpdate, Args: []any{protocol.Hold{Who: "chaos"}},
				WaitForStage: sdk.WorkflowUpdateStageCompleted,
			})
			asked = err == nil && handle.Get(attempt, nil) == nil
		}
		if asked {
			var status protocol.RolloutStatus
			answer, err := w.temporal.QueryWorkflow(attempt, id, "", protocol.StatusQuery)
			if err == nil && answer.Get(&status) == nil && status.Hold != nil && status.Phase == protocol.PhasePaused && !w.over(attempt, id) {
				done()
				return true
			}
		}
		done()
		time.Sleep(applyAgain)
	}
	return false
}

// over reports whether the newest run has ended, as far as Temporal answers.
func (w *world) over(ctx context.Context, id string) bool {
	attempt, done := context.WithTimeout(ctx, 3*time.Second)
	defer done()
	run, err := w.temporal.DescribeWorkflowExecution(attempt, id, "")
	return err == nil && run.WorkflowExecutionInfo.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING
}

// resume ends the pause of the open run, if there is one.
func (w *world) resume(ctx context.Context, id string) error {
	return w.insist(ctx, func(ctx context.Context) error {
		err := w.temporal.SignalWorkflow(ctx, id, "", protocol.ResumeSignal, protocol.Hold{Who: "chaos"})
		if missing := (*serviceerror.NotFound)(nil); errors.As(err, &missing) {
			return nil
		}
		return err
	})
}
