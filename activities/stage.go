package activities

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/gate"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// stage returns the Stage of the plan. stage reads the policies from the API server only if the Stage of the
// run does not decide the plan, and at most once in an activity.
func (n *nextBatch) stage(ctx context.Context, set *v1alpha1.SidecarSet) (*protocol.Stage, error) {
	if n.stageIsRead {
		return n.resolved, nil
	}
	var policies []outriggerv1.RolloutPolicy
	decided := stage.Decided(set, n.input.Stage)
	if !decided {
		var err error
		if policies, err = n.policiesSince(ctx, n.began); err != nil {
			return nil, err
		}
	}
	resolved, err := stage.Resolve(set, n.input.Stage, policies)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	if !decided && (resolved == nil || resolved.Aborted == nil) {
		if err := checkGates(resolved); err != nil {
			return nil, err
		}
	}
	n.resolved, n.stageIsRead = resolved, true
	return resolved, nil
}

// checkGates returns an error if a gate of the next step is invalid. After the error, the step does not begin
// until the policy is corrected.
func checkGates(s *protocol.Stage) error {
	if !s.Limits() {
		return nil
	}
	for i := range s.Step.Gates {
		if err := gate.Check(s.Policy, &s.Step.Gates[i]); err != nil {
			return err
		}
	}
	return nil
}

// recordedStage returns the stage that status records for the generation of a SidecarSet. A run of
// another generation continues in this stage.
func (n *nextBatch) recordedStage(set *v1alpha1.SidecarSet) *protocol.Stage {
	if !n.input.Stages {
		return nil
	}
	return stage.OfStatus(set)
}

// acceptedStage returns the current stage of the rollout. If a user has resumed the rollout after pods
// failed, the stage stops counting these pods as failed. While the run is paused, the stage stays unchanged.
func (n *nextBatch) acceptedStage(ctx context.Context, set *v1alpha1.SidecarSet, population []rollout.Pod) (*protocol.Stage, error) {
	current, err := n.stage(ctx, set)
	if err != nil {
		return nil, err
	}
	n.healthAgain = n.observeHealth(set, population, current)
	if current == nil || !current.Accept || n.input.Paused {
		return current, nil
	}
	if n.resolved, err = rollout.Accept(set, population, current); err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	return n.resolved, nil
}

// knownPolicies are the policies of a cluster. defined is false if the cluster lacks the
// CustomResourceDefinition of RolloutPolicies. items is then empty.
type knownPolicies struct {
	items   []outriggerv1.RolloutPolicy
	defined bool
}

// policiesSince returns policies from a request that was sent no earlier than at, because a policy may have
// been created just before the rollout began. Activities that begin at the same time share one request. If the
// CustomResourceDefinition is missing, the answer may be from before at, because each further request would
// also run API discovery.
func (a *Activities) policiesSince(ctx context.Context, at time.Time) ([]outriggerv1.RolloutPolicy, error) {
	listed := a.lists().policies
	known, err := listed.get(ctx)
	if err == nil && known.defined {
		known, err = listed.since(ctx, at)
	}
	return known.items, err
}

func (a *Activities) listPolicies(ctx context.Context) (knownPolicies, error) {
	var all outriggerv1.RolloutPolicyList
	err := a.list(ctx, &all)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return knownPolicies{}, nil
	}
	if err != nil {
		return knownPolicies{}, fmt.Errorf("list RolloutPolicies: %w", err)
	}
	return knownPolicies{items: all.Items, defined: true}, nil
}

// omitStages removes the fields from result that a workflow without stages does not know, and returns the time
// until the next check. A limit of a stage or a freeze becomes the phase Waiting. In phase Waiting, such a
// workflow requests the next plan immediately while an activity writes conditions. omitStages therefore delays
// a result without conditions, like other results in phase Waiting.
func (n *nextBatch) omitStages(result *protocol.NextBatchResult, again time.Duration) time.Duration {
	limited := result.Failure != nil || result.Phase == protocol.PhaseFrozen || result.Phase == protocol.PhaseStepReached
	result.Stage, result.Failure, result.FrozenUntil, result.ProgressDue = nil, nil, nil, false
	result.Again = 0
	if !limited {
		return again
	}
	result.Phase = protocol.PhaseWaiting
	if len(result.FalseConditions)+len(result.TrueConditions) > 0 {
		return again
	}
	return n.idle.left(result.Counts)
}
