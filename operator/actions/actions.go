// Package actions carries out RolloutActions: it sends each action to the run of its SidecarSet, and
// writes the answer into status (SPEC 11.13).
package actions

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/action"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/operator/runs"
)

// concurrency is the number of actions that are carried out at once. An action waits some seconds for
// the answer of its run.
const concurrency = 8

// Runs sends updates to runs. Package operator/runs implements it.
type Runs interface {
	NewestRun(ctx context.Context, set protocol.SetReference) (*runs.Run, error)
	Update(ctx context.Context, set protocol.SetReference, name, id string, payload any) (runs.Answer, error)
	AnswerTo(ctx context.Context, set protocol.SetReference, id string) (runs.Answer, error)
}

// Controller carries out actions. It reads without a cache, so that an action that was deleted a
// moment ago is not carried out.
type Controller struct {
	Client client.Client
	Runs   Runs
	// Changed is called with the SidecarSet of each action that the run has answered.
	Changed func(set string)
	Clock   clock.PassiveClock
}

// AddTo adds the controller to a manager. In a cluster without the definition of RolloutActions, AddTo
// adds nothing.
func (c *Controller) AddTo(mgr manager.Manager) error {
	watched, err := kube.OptionalCache(mgr, outriggerv1.GroupVersion.WithKind("RolloutAction"))
	if err != nil {
		return err
	}
	if watched == nil {
		mgr.GetLogger().Info("RolloutActions are not installed; to use them, apply config/crd, config/rbac and config/webhook, and restart the operator")
		return nil
	}
	added, err := controller.New("rolloutaction", mgr, controller.Options{
		Reconciler: c, MaxConcurrentReconciles: concurrency, CacheSyncTimeout: math.MaxInt64,
	})
	if err != nil {
		return fmt.Errorf("set up the controller of RolloutActions: %w", err)
	}
	err = added.Watch(source.Kind(watched, &outriggerv1.RolloutAction{}, &handler.TypedEnqueueRequestForObject[*outriggerv1.RolloutAction]{}, reopened()))
	if err != nil {
		return fmt.Errorf("set up the watch over RolloutActions: %w", err)
	}
	return nil
}

// reopened ignores the controller's own writes. It accepts an action that had ended and is open again,
// because such an action comes from a restored backup.
func reopened() predicate.TypedPredicate[*outriggerv1.RolloutAction] {
	return predicate.TypedFuncs[*outriggerv1.RolloutAction]{
		UpdateFunc: func(e event.TypedUpdateEvent[*outriggerv1.RolloutAction]) bool {
			return action.Final(e.ObjectOld) && !action.Final(e.ObjectNew)
		},
		DeleteFunc: func(event.TypedDeleteEvent[*outriggerv1.RolloutAction]) bool { return false },
	}
}

// Reconcile implements reconcile.Reconciler.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	a, read := &outriggerv1.RolloutAction{}, c.Clock.Now()
	if err := c.Client.Get(ctx, request.NamespacedName, a); err != nil || a.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if action.Final(a) {
		return c.clean(ctx, a)
	}
	if err := c.carryOut(ctx, a, read); err != nil {
		// An action that was deleted meanwhile is not carried out.
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("RolloutAction %s: %w", a.Name, err))
	}
	if action.Final(a) {
		return reconcile.Result{RequeueAfter: action.DeleteAt(a).Sub(c.Clock.Now())}, nil
	}
	return reconcile.Result{RequeueAfter: action.RetryAfter(a, c.Clock.Now())}, nil
}

// clean deletes an action an hour after its end.
func (c *Controller) clean(ctx context.Context, a *outriggerv1.RolloutAction) (reconcile.Result, error) {
	if left := action.DeleteAt(a).Sub(c.Clock.Now()); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	err := c.Client.Delete(ctx, a, client.Preconditions{UID: &a.UID})
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete RolloutAction %s, which ended an hour ago: %w", a.Name, err)
	}
	return reconcile.Result{}, nil
}

// carryOut makes one attempt to carry out an action that was read at a time. The action may have been
// deleted since.
func (c *Controller) carryOut(ctx context.Context, a *outriggerv1.RolloutAction, read time.Time) error {
	set := &v1alpha1.SidecarSet{}
	switch err := c.Client.Get(ctx, client.ObjectKey{Name: a.Spec.SidecarSet}, set); {
	case apierrors.IsNotFound(err):
		set = nil
	case err != nil:
		return fmt.Errorf("get SidecarSet %s: %w", a.Spec.SidecarSet, err)
	}
	refused := action.Refused(a, set, c.Clock.Now())
	if set == nil || a.Spec.RequestedBy == "" {
		return c.record(ctx, a, outriggerv1.ActionRejected, refused)
	}
	// Status may be lost or out of date, but the run knows the actions that it carried out.
	answer, err := c.Runs.AnswerTo(ctx, runs.Reference(set), action.UpdateID(a))
	switch {
	case err == nil:
		return c.answered(ctx, a, set, answer)
	case refused != "":
		return c.record(ctx, a, outriggerv1.ActionRejected, refused)
	case !errors.Is(err, runs.ErrNoRun):
		return c.wait(ctx, a, err.Error())
	}
	if a.Status.Target == nil {
		ready, err := c.choose(ctx, a, set)
		if err != nil || !ready {
			return err
		}
	}
	return c.send(ctx, a, set, read)
}

// choose writes the target of an action into status. ready is false if the action cannot be sent.
func (c *Controller) choose(ctx context.Context, a *outriggerv1.RolloutAction, set *v1alpha1.SidecarSet) (ready bool, err error) {
	unconfirmed, err := c.unconfirmedUser(ctx, a)
	if err != nil {
		return false, err
	}
	if unconfirmed != "" {
		return false, c.record(ctx, a, outriggerv1.ActionRejected, unconfirmed)
	}
	run, err := c.Runs.NewestRun(ctx, runs.Reference(set))
	if err != nil {
		return false, c.wait(ctx, a, err.Error())
	}
	target, wait, rejected := action.Target(a, set, action.Run{Open: run.Open(), Generation: run.Generation, Stage: run.Stage})
	switch {
	case rejected != "":
		return false, c.record(ctx, a, outriggerv1.ActionRejected, rejected)
	case wait != "":
		return false, c.wait(ctx, a, wait)
	}
	a.Status.Target = target
	return true, c.wait(ctx, a, "sent to the run")
}

// unconfirmedUser returns the reason for which the user of an action may be wrong, or "".
func (c *Controller) unconfirmedUser(ctx context.Context, a *outriggerv1.RolloutAction) (string, error) {
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	err := c.Client.Get(ctx, client.ObjectKey{Name: kube.WebhookConfigurationName}, &configuration)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read MutatingWebhookConfiguration %s: %w", kube.WebhookConfigurationName, err)
	}
	return action.UnconfirmedUser(a, &configuration), nil
}

// send sends an action with a target to its run.
func (c *Controller) send(ctx context.Context, a *outriggerv1.RolloutAction, set *v1alpha1.SidecarSet, read time.Time) error {
	completed, err := revision.Completed(set)
	if err != nil {
		return c.wait(ctx, a, err.Error())
	}
	update, payload := action.Request(a, completed.Annotations[v1alpha1.HashAnnotation], read)
	answer, err := c.Runs.Update(ctx, runs.Reference(set), update, action.UpdateID(a), payload)
	switch {
	case errors.Is(err, runs.ErrNoRun):
		return c.wait(ctx, a, action.NoRun(a, set))
	case err != nil:
		return c.wait(ctx, a, err.Error())
	}
	return c.answered(ctx, a, set, answer)
}

func (c *Controller) answered(ctx context.Context, a *outriggerv1.RolloutAction, set *v1alpha1.SidecarSet, answer runs.Answer) error {
	phase := outriggerv1.ActionSucceeded
	if answer.Rejected {
		phase = outriggerv1.ActionRejected
	}
	c.Changed(set.Name)
	return c.record(ctx, a, phase, action.Answer(a, set, answer.Message, answer.Rejected))
}

func (c *Controller) wait(ctx context.Context, a *outriggerv1.RolloutAction, message string) error {
	return c.record(ctx, a, outriggerv1.ActionPending, message)
}

// record writes a phase and its message into status.
func (c *Controller) record(ctx context.Context, a *outriggerv1.RolloutAction, phase outriggerv1.RolloutActionPhase, message string) error {
	before := &outriggerv1.RolloutAction{}
	a.DeepCopyInto(before)
	if a.Status.Phase != phase {
		a.Status.Time = &metav1.Time{Time: c.Clock.Now().Truncate(time.Second)}
	}
	a.Status.Phase, a.Status.Message, a.Status.ObservedGeneration = phase, message, a.Generation
	if equality.Semantic.DeepEqual(before.Status, a.Status) {
		return nil
	}
	if err := c.Client.Status().Update(ctx, a); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
