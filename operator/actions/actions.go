// Package actions executes RolloutActions. The Controller sends each action to the run of the SidecarSet, and
// writes the answer of the run into the status of the action (SPEC 11.13).
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
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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

// concurrency is the maximum number of concurrent reconciles. A reconcile may wait several seconds for the
// answer of a run, and must not delay other actions.
const concurrency = 8

// Runs reads runs, and sends updates to runs. runs.Client implements Runs.
type Runs interface {
	NewestRun(ctx context.Context, set protocol.SetReference) (*runs.Run, error)
	Update(ctx context.Context, set protocol.SetReference, name, id string, payload any) (runs.Answer, error)
	AnswerTo(ctx context.Context, set protocol.SetReference, id string) (runs.Answer, error)
}

// Controller executes actions. Client reads from the API server instead of a cache, so that a deleted action
// is not executed.
type Controller struct {
	Client client.Client
	Runs   Runs
	// Changed is called with the name of the SidecarSet after the run has answered an action.
	Changed func(set string)
	Clock   clock.PassiveClock
}

// AddTo adds the controller to a manager. If the CustomResourceDefinition of RolloutActions is not installed,
// the controller is added after the installation.
func (c *Controller) AddTo(mgr manager.Manager) error {
	installed, err := kube.WhenInstalled(mgr, outriggerv1.GroupVersion.WithKind("RolloutAction"), func(watched cache.Cache) error {
		return c.start(mgr, watched)
	})
	if err == nil && !installed {
		mgr.GetLogger().Info("RolloutActions are not installed; to use them, apply config/crd, config/rbac and config/webhook")
	}
	return err
}

func (c *Controller) start(mgr manager.Manager, watched cache.Cache) error {
	added, err := controller.New("rolloutaction", mgr, controller.Options{
		Reconciler: c, MaxConcurrentReconciles: concurrency, RateLimiter: kube.RateLimiter(), CacheSyncTimeout: math.MaxInt64,
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

// reopened returns a predicate that accepts each new action, and each update that reopens an ended action. A
// restore from a backup reopens an ended action. The predicate ignores deletions and all other updates, such
// as the writes of the controller.
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
		// A NotFound error means that the action was deleted, so a retry is not necessary.
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("RolloutAction %s: %w", a.Name, err))
	}
	if action.Final(a) {
		return reconcile.Result{RequeueAfter: action.DeleteAt(a).Sub(c.Clock.Now())}, nil
	}
	return reconcile.Result{RequeueAfter: action.RetryAfter(a, c.Clock.Now())}, nil
}

// clean deletes a RolloutAction that has ended. If less than an hour has passed since the end, clean only
// requeues the action.
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

// carryOut makes one attempt to execute the action a. read is the time at which the reconcile read a. The run
// rejects a request that arrives more than a minute after read, because a may be deleted in the meantime.
func (c *Controller) carryOut(ctx context.Context, a *outriggerv1.RolloutAction, read time.Time) error {
	set := &v1alpha1.SidecarSet{}
	switch err := c.Client.Get(ctx, client.ObjectKey{Name: a.Spec.SidecarSet}, set); {
	case apierrors.IsNotFound(err), len(content.IsPathSegmentName(a.Spec.SidecarSet)) > 0:
		set = nil
	case err != nil:
		return fmt.Errorf("get SidecarSet %s: %w", a.Spec.SidecarSet, err)
	}
	refused := action.Refused(a, set, c.Clock.Now())
	if set == nil || a.Spec.RequestedBy == "" {
		return c.record(ctx, a, outriggerv1.ActionRejected, refused)
	}
	// The answer is read from the run, because the status of the action may be lost or outdated.
	answer, err := c.Runs.AnswerTo(ctx, runs.Reference(set), action.UpdateID(a))
	switch {
	case err == nil:
		return c.answered(ctx, a, set, answer)
	case refused != "" && a.Status.Target != nil && !errors.Is(err, runs.ErrNoRun) && !action.Expired(a, c.Clock.Now()):
		// An earlier attempt may have sent the update, and the run may still accept the update.
		return c.wait(ctx, a, err.Error())
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

// choose selects the target of the action a, and writes the target into status. If the action cannot be sent
// yet, choose writes the reason into status, and ready is false.
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
	target, wait, rejected := action.Target(a, set, action.Run{Open: run.Open(), Completed: run.Completed(), Generation: run.Generation, Stage: run.Stage})
	switch {
	case rejected != "":
		return false, c.record(ctx, a, outriggerv1.ActionRejected, rejected)
	case wait != "":
		return false, c.wait(ctx, a, wait)
	}
	a.Status.Target = target
	return true, c.wait(ctx, a, "sent to the run")
}

// unconfirmedUser returns the reason why spec.requestedBy may be wrong, or "" if the webhook has set
// spec.requestedBy.
func (c *Controller) unconfirmedUser(ctx context.Context, a *outriggerv1.RolloutAction) (string, error) {
	var configuration admissionregistrationv1.MutatingWebhookConfiguration
	err := c.Client.Get(ctx, client.ObjectKey{Name: kube.WebhookConfigurationName}, &configuration)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read MutatingWebhookConfiguration %s: %w", kube.WebhookConfigurationName, err)
	}
	return action.UnconfirmedUser(a, &configuration), nil
}

// send sends the action a to the run of set, and records the answer. The status of a must contain the target.
// read is the time at which the reconcile read a.
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

// record writes phase and message into the status of the action, unless status already has both.
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
