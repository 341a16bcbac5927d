// Package defaults writes the defaults of a SidecarSet (SPEC §1). The defaults equal the defaults of OpenKruise
// 1.9. Hashes include the defaults, so the defaults must not change, even if a later version of Kubernetes adds
// defaults to pods.
package defaults

import (
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// HistoryLimit is the default of revisionHistoryLimit.
const HistoryLimit = 10

const (
	defaultPartition      = 0
	defaultMaxUnavailable = 1
	defaultTargets        = ".*"
)

// Write writes the defaults of a SidecarSet (SPEC §1). Write is idempotent.
func Write(set *v1alpha1.SidecarSet) {
	spec := &set.Spec
	labelCustomVersion(set)
	for i := range spec.InitContainers {
		defaultSidecar(&spec.InitContainers[i], v1alpha1.AfterAppContainerType)
	}
	for i := range spec.Containers {
		defaultSidecar(&spec.Containers[i], v1alpha1.BeforeAppContainerType)
	}
	for i := range spec.Volumes {
		Volume(&spec.Volumes[i])
	}
	for i := range spec.PatchPodMetadata {
		orDefault(&spec.PatchPodMetadata[i].PatchPolicy, v1alpha1.SidecarSetRetainPatchPolicy)
	}
	if pinned := spec.InjectionStrategy.Revision; pinned != nil {
		orDefault(&pinned.Policy, v1alpha1.AlwaysSidecarSetInjectRevisionPolicy)
	}
	pointerOrDefault(&spec.RevisionHistoryLimit, HistoryLimit)
	defaultStrategy(&spec.UpdateStrategy)
}

// labelCustomVersion moves spec.customVersion to the label of v1alpha1. An existing label takes precedence, as
// in package conversion.
func labelCustomVersion(set *v1alpha1.SidecarSet) {
	version := set.Spec.CustomVersion
	set.Spec.CustomVersion = ""
	if _, labelled := set.Labels[v1alpha1.CustomVersionLabel]; labelled || version == "" {
		return
	}
	if set.Labels == nil {
		set.Labels = map[string]string{}
	}
	set.Labels[v1alpha1.CustomVersionLabel] = version
}

func defaultStrategy(strategy *v1alpha1.SidecarSetUpdateStrategy) {
	orDefault(&strategy.Type, v1alpha1.RollingUpdateSidecarSetStrategyType)
	pointerOrDefault(&strategy.Partition, intstr.FromInt32(defaultPartition))
	pointerOrDefault(&strategy.MaxUnavailable, intstr.FromInt32(defaultMaxUnavailable))
}

func defaultSidecar(c *v1alpha1.SidecarContainer, policy v1alpha1.PodInjectPolicyType) {
	orDefault(&c.PodInjectPolicy, policy)
	orDefault(&c.UpgradeStrategy.UpgradeType, v1alpha1.SidecarContainerColdUpgrade)
	orDefault(&c.ShareVolumePolicy.Type, v1alpha1.ShareVolumePolicyDisabled)
	if c.ShareVolumeDevicePolicy != nil {
		orDefault(&c.ShareVolumeDevicePolicy.Type, v1alpha1.ShareVolumePolicyDisabled)
	}
	for i := range c.TransferEnv {
		if from := c.TransferEnv[i].SourceContainerNameFrom; from != nil {
			defaultFieldRef(from.FieldRef)
		}
	}
	if c.ResourcesPolicy != nil {
		orDefault(&c.ResourcesPolicy.TargetContainersNameRegex, defaultTargets)
	}
	defaultContainer(&c.Container)
}

func orDefault[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}

func pointerOrDefault[T any](field **T, value T) {
	if *field == nil {
		*field = new(value)
	}
}
