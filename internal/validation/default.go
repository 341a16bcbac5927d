package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

const (
	defaultPartition      = 0
	defaultMaxUnavailable = 1
	defaultTargets        = ".*"
)

// Default fills in what a SidecarSet leaves open (SPEC §1), among it what
// Kubernetes would write into a pod with these containers and volumes: hashes
// are taken over the result.
func Default(set *v1alpha1.SidecarSet) {
	spec := &set.Spec
	labelCustomVersion(set)
	for i := range spec.InitContainers {
		defaultSidecar(&spec.InitContainers[i], v1alpha1.AfterAppContainerType)
	}
	for i := range spec.Containers {
		defaultSidecar(&spec.Containers[i], v1alpha1.BeforeAppContainerType)
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for i := range spec.PatchPodMetadata {
		orDefault(&spec.PatchPodMetadata[i].PatchPolicy, v1alpha1.SidecarSetRetainPatchPolicy)
	}
	if pinned := spec.InjectionStrategy.Revision; pinned != nil {
		orDefault(&pinned.Policy, v1alpha1.AlwaysSidecarSetInjectRevisionPolicy)
	}
	pointerOrDefault(&spec.RevisionHistoryLimit, revision.DefaultHistoryLimit)
	defaultStrategy(&spec.UpdateStrategy)
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

// WriteHashes puts both hashes of a defaulted SidecarSet into its annotations (SPEC §2).
func WriteHashes(set *v1alpha1.SidecarSet) error {
	hash, err := revision.Hash(&set.Spec)
	if err != nil {
		return fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	blank, err := revision.HashWithoutImage(&set.Spec)
	if err != nil {
		return fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	set.Annotations[v1alpha1.HashAnnotation] = hash
	set.Annotations[v1alpha1.HashWithoutImageAnnotation] = blank
	return nil
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
