package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/action"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
)

const (
	// actionTimeout limits the wait for the end of a RolloutAction. actionInterval is the time between two
	// reads of the RolloutAction.
	actionTimeout  = 15 * time.Second
	actionInterval = 200 * time.Millisecond
)

// addViaCluster adds the flag --via-cluster, with which a command creates a RolloutAction.
func addViaCluster(cmd *cobra.Command, via *bool) {
	cmd.Flags().BoolVar(via, "via-cluster", false, "create a RolloutAction, which the operator carries out, and do not connect to Temporal")
}

// viaCluster returns the remedy for a command that cannot connect to Temporal. With --via-cluster, the operator
// carries out the command with its own connection to Temporal.
func viaCluster(command string) string {
	return "through the operator: kubectl sidecarset " + command + " --via-cluster"
}

// act creates a RolloutAction for a SidecarSet, and waits until the RolloutAction ends. After actionTimeout,
// act deletes the RolloutAction, so that the operator does not carry out the action later.
func (s *shared) act(ctx context.Context, c *cluster, name string, spec outriggerv1.RolloutActionSpec) (model, error) {
	set, err := c.set(ctx, name)
	if err != nil {
		return nil, err
	}
	spec.SidecarSet = set.Name
	if spec.Verb != outriggerv1.VerbPause && spec.Verb != outriggerv1.VerbResume {
		spec.Generation = set.Generation
	}
	a := &outriggerv1.RolloutAction{ObjectMeta: metav1.ObjectMeta{GenerateName: string(spec.Verb) + "-"}, Spec: spec}
	switch err := c.live.Create(ctx, a); {
	case kube.MissingKind(err):
		return nil, fmt.Errorf("%s the rollout of SidecarSet %s: this cluster does not know RolloutActions; apply config/crd, or leave out --via-cluster", spec.Verb, set.Name)
	case err != nil:
		return nil, explain(err, "create a RolloutAction")
	}
	if err := c.awaitAction(ctx, a); err != nil {
		return nil, fmt.Errorf("%s the rollout of SidecarSet %s: %w", spec.Verb, set.Name, err)
	}
	if endsPause(spec.Verb, set) {
		set.Status.Rollout = nil // The status may still show the ended pause.
	}
	c.withoutEnded(ctx, set, string(spec.Verb), spec.Full, s.now())
	next := nextOfRollout(set)
	if spec.Verb == outriggerv1.VerbPause {
		next = []string{"next: " + view.ResumeCommand(set.Name)} // The status may not show the pause yet.
	}
	return stepAnswer{Name: set.Name, StepResult: protocol.StepResult{Message: a.Status.Message}, next: next}, nil
}

// endsPause reports whether an action with verb ends the pause in the status of set. A promotion ends a pause
// only if a gate of the step caused the pause.
func endsPause(verb outriggerv1.RolloutVerb, set *v1alpha1.SidecarSet) bool {
	if verb != outriggerv1.VerbPromote {
		return verb == outriggerv1.VerbResume || verb == outriggerv1.VerbAbort
	}
	status, current := set.Status.Rollout, stage.OfStatus(set)
	return status != nil && status.Pause != nil && protocol.Pause{By: status.Pause.By}.ByPolicy() &&
		(current.EndedGate(protocol.GateInconclusive) != nil || current.EndedGate(protocol.GateFailure) != nil)
}

// awaitAction waits until the RolloutAction a ends. If a is rejected or does not end in time, awaitAction
// returns an error.
func (c *cluster) awaitAction(ctx context.Context, a *outriggerv1.RolloutAction) error {
	key := client.ObjectKeyFromObject(a)
	err := wait.PollUntilContextTimeout(ctx, actionInterval, actionTimeout, true, func(context.Context) (bool, error) {
		reading, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		err := c.live.Get(reading, key, a)
		return err == nil && action.Final(a), err
	})
	if err != nil {
		withdrawing, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		if err := c.withdraw(withdrawing, a, err); err != nil {
			return err
		}
	}
	if a.Status.Phase == outriggerv1.ActionRejected {
		return errors.New(a.Status.Message)
	}
	return nil
}

// withdraw deletes the RolloutAction a, and returns an error. If a ended in the meantime, withdraw returns nil.
func (c *cluster) withdraw(ctx context.Context, a *outriggerv1.RolloutAction, cause error) error {
	for {
		err := c.live.Delete(ctx, a, client.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion})
		switch {
		case apierrors.IsConflict(err): // The operator has written the status since the last read.
			if err := c.live.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
				return explain(err, "get RolloutAction "+a.Name)
			}
			if action.Final(a) {
				return nil
			}
		case apierrors.IsNotFound(err):
			return fmt.Errorf("RolloutAction %s was deleted before its end", a.Name)
		case err != nil:
			return fmt.Errorf("%w; to withdraw it: kubectl delete rolloutaction %s", explain(err, "delete RolloutAction "+a.Name), a.Name)
		case wait.Interrupted(cause):
			return unconfirmed(a)
		default:
			return explain(cause, "get RolloutAction "+a.Name)
		}
	}
}

// unconfirmed returns the error of a RolloutAction that has not ended.
func unconfirmed(a *outriggerv1.RolloutAction) error {
	message := a.Status.Message
	if a.Status.Phase == "" {
		message = "the operator has not observed the RolloutAction: check that the operator runs with config/rbac"
	}
	return fmt.Errorf("not carried out within %s: %s; RolloutAction %s is deleted, and can take effect only in the next minute", actionTimeout, message, a.Name)
}
