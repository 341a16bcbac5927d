// Package fleet decides in which order the clusters of a fleet roll out the content of a SidecarSet (SPEC
// §12). The decisions depend on verdicts about content, and never on the observed health of a cluster.
package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// defaultUnreachable is the default of unreachable.after.
const defaultUnreachable = 10 * time.Minute

// maxStages limits the stages of a policy.
const maxStages = 50

// Validate returns the joined errors of all invalid fields of a FleetPolicy, or nil (SPEC 12.1.2). Workflows
// call Validate only in the validator of an update, and a replay does not run validators.
//
//workflowcheck:ignore
func Validate(policy *outriggerv1.FleetPolicy) error {
	var all []error
	wrong := func(field, cause string) {
		all = append(all, fmt.Errorf("FleetPolicy %s: %s: %s", policy.Metadata.Name, field, cause))
	}
	if version := outriggerv1.GroupVersion.String(); policy.APIVersion != version || policy.Kind != "FleetPolicy" {
		wrong("apiVersion and kind", "use "+version+" and FleetPolicy")
	}
	if reasons := validation.IsDNS1123Label(policy.Metadata.Name); len(reasons) > 0 {
		wrong("metadata.name", reasons[0])
	}
	spec := &policy.Spec
	if len(spec.SidecarSets.MatchNames) == 0 {
		wrong("spec.sidecarSets.matchNames", `name at least one SidecarSet, such as "*"`)
	}
	for i, pattern := range spec.SidecarSets.MatchNames {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			wrong(fmt.Sprintf("spec.sidecarSets.matchNames[%d]", i), fmt.Sprintf("%q is not a name or a pattern such as logs-*", pattern))
		}
	}
	if n := len(spec.Stages); n == 0 || n > maxStages {
		wrong("spec.stages", fmt.Sprintf("a policy must have 1 to %d stages", maxStages))
	}
	validateStages(spec.Stages, wrong)
	validateGates(spec, wrong)
	validateFailure(spec, wrong)
	return errors.Join(all...)
}

func validateFailure(spec *outriggerv1.FleetPolicySpec, wrong func(field, cause string)) {
	actions := []outriggerv1.FleetAction{"", outriggerv1.FleetPause, outriggerv1.FleetRollbackStage, outriggerv1.FleetRollbackAll}
	if !slices.Contains(actions, spec.Failure.Action) {
		wrong("spec.failure.action", fmt.Sprintf("%q is none of Pause, RollbackStage and RollbackAll", spec.Failure.Action))
	}
	if after := spec.Unreachable.After; after != nil && after.Duration <= 0 {
		wrong("spec.unreachable.after", "use a positive duration such as 10m")
	}
	if spec.Failure.MaxFailedClusters < 0 {
		wrong("spec.failure.maxFailedClusters", "use a number of clusters from 0")
	}
	if limit := spec.Unreachable.Max; limit != nil {
		if n, err := intstr.GetScaledValueFromIntOrPercent(limit, 100, false); err != nil || n < 0 {
			wrong("spec.unreachable.max", "use a number of clusters from 0, or a percentage such as 10%")
		}
	}
}

func validateStages(stages []outriggerv1.FleetStage, wrong func(field, cause string)) {
	names := map[string]bool{}
	for i := range stages {
		stage := &stages[i]
		for _, cause := range stageErrors(stage) {
			wrong(fmt.Sprintf("spec.stages[%d].%s", i, cause[0]), cause[1])
		}
		if names[stage.Name] {
			wrong(fmt.Sprintf("spec.stages[%d].name", i), fmt.Sprintf("the names of stages must differ, and %q occurs twice", stage.Name))
		}
		names[stage.Name] = true
	}
}

// stageErrors returns the invalid fields of a stage with their causes.
func stageErrors(stage *outriggerv1.FleetStage) (wrong [][2]string) {
	if reasons := validation.IsDNS1123Label(stage.Name); len(reasons) > 0 {
		wrong = append(wrong, [2]string{"name", reasons[0]})
	}
	for _, key := range Keys(stage.Clusters.MatchLabels) {
		if reasons := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(stage.Clusters.MatchLabels[key])...); len(reasons) > 0 {
			wrong = append(wrong, [2]string{"clusters.matchLabels." + key, reasons[0]})
		}
	}
	if limit := stage.MaxConcurrentClusters; limit != nil {
		if n, err := intstr.GetScaledValueFromIntOrPercent(limit, 100, true); err != nil || n < 1 {
			wrong = append(wrong, [2]string{"maxConcurrentClusters", "use a number of clusters from 1, or a percentage such as 25%"})
		}
	}
	if stage.Bake != nil && stage.Bake.Duration < 0 {
		wrong = append(wrong, [2]string{"bake", "use a duration of at least 0s, such as 1h"})
	}
	return wrong
}

// PolicyOf returns the policy of a SidecarSet. If the patterns of several policies match the name of the
// SidecarSet, PolicyOf returns the policy whose name sorts first (SPEC 12.1.3). name is empty if no policy
// matches.
func PolicyOf(set string, policies map[string]protocol.AppliedFleetPolicy) (name string, spec outriggerv1.FleetPolicySpec) {
	for _, name := range Keys(policies) {
		if policy := policies[name]; matches(set, policy.Spec.SidecarSets.MatchNames) {
			return name, policy.Spec
		}
	}
	return "", outriggerv1.FleetPolicySpec{}
}

func matches(set string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		matched, err := path.Match(pattern, set)
		return err == nil && matched
	})
}

// PlanOf returns the plan of a SidecarSet: the policy of the SidecarSet, and all members of the fleet,
// sorted by name.
func PlanOf(set string, registry *protocol.FleetRegistry) protocol.FleetPlan {
	var plan protocol.FleetPlan
	plan.Policy, plan.Spec = PolicyOf(set, registry.Policies)
	for _, uid := range Keys(registry.Members) {
		plan.Members = append(plan.Members, registry.Members[uid])
	}
	slices.SortStableFunc(plan.Members, func(a, b protocol.FleetMember) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return plan
}

// stageOf returns the index of the first stage that selects a cluster (SPEC 12.2.1). If no stage selects
// the cluster, stageOf returns the number of stages.
func stageOf(spec *outriggerv1.FleetPolicySpec, member *protocol.FleetMember) int {
	for i := range spec.Stages {
		if hasLabels(member.Labels, spec.Stages[i].Clusters.MatchLabels) {
			return i
		}
	}
	return len(spec.Stages)
}

func hasLabels(labels, wanted map[string]string) bool {
	for _, key := range Keys(wanted) {
		if value, ok := labels[key]; !ok || value != wanted[key] {
			return false
		}
	}
	return true
}

// UnreachableAfter returns the time after which a cluster that does not respond, or does not have the
// content, is skipped.
func UnreachableAfter(spec *outriggerv1.FleetPolicySpec) time.Duration {
	if spec.Unreachable.After == nil {
		return defaultUnreachable
	}
	return spec.Unreachable.After.Duration
}

// Keys returns the keys of a map in sorted order, because a replay of a workflow must make the same
// decisions.
//
//workflowcheck:ignore
func Keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
