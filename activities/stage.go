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

// stage returns the current Stage of the rollout. stage reads the policies from the API server only if the Stage
// of the run no longer applies, and at most once per activity.
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

// checkGates returns an error if a gate of the next step is invalid. The error prevents the start of the step
// until a user corrects the policy.
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

// recordedStage returns the stage that status records for the current generation of a SidecarSet. If this
// generation supersedes the generation of the run, the next run continues in the recorded stage.
func (n *nextBatch) recordedStage(set *v1alpha1.SidecarSet) *protocol.Stage {
	if !n.input.Stages {
		return nil
	}
	return stage.OfStatus(set)
}

// acceptedStage returns the current stage of the rollout. If a user has resumed the rollout after pods failed,
// the stage no longer counts these pods as failed. While the run is paused, acceptedStage does not change the
// stage.
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

// knownPolicies is the result of a list request for RolloutPolicies. If the cluster has no
// CustomResourceDefinition of RolloutPolicies, defined is false and items is empty.
type knownPolicies struct {
	items   []outriggerv1.RolloutPolicy
	defined bool
}

// policiesSince returns policies from a request that was sent no earlier than at, because a policy may have been
// created just before the rollout began. Activities that begin at the same time share one request. If the
// CustomResourceDefinition is missing, policiesSince accepts an older response, because each request would also
// run API discovery.
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

// omitStages prepares result for a workflow of a release without stages, and returns the time until the next
// check. omitStages clears the fields that such a workflow does not support, and replaces the phases of stages
// and freezes with the phase Waiting. In phase Waiting, such a workflow requests the next plan immediately while
// an activity writes conditions. omitStages therefore delays a result without conditions, like other results in
// phase Waiting.
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
