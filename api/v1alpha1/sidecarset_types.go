package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SidecarSet declares sidecar containers for the pods it selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,path=sidecarsets,shortName=scs
// +kubebuilder:printcolumn:name="MATCHED",type="integer",JSONPath=".status.matchedPods",description="Pods injected and managed by this set."
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedPods",description="Matched pods that hold the newest version."
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyPods",description="Matched pods that are ready."
// +kubebuilder:printcolumn:name="REASON",type="string",priority=1,JSONPath=".status.conditions[?(@.type==\"Progressing\")].reason",description="Where the rollout stands."
// +kubebuilder:printcolumn:name="TROUBLE",type="string",priority=1,JSONPath=".status.conditions[?(@.type==\"Degraded\")].reason",description="What keeps the set from working, or why nothing does."
// +kubebuilder:printcolumn:name="HELD-BY",type="string",priority=1,JSONPath=".status.rollout.hold.who",description="Who paused the run by signal or update."
// +kubebuilder:printcolumn:name="WINDOW",type="string",priority=1,JSONPath=".spec.updateStrategy.maxUnavailable",description="Pods that may be unavailable at once."
// +kubebuilder:printcolumn:name="PARTITION",type="string",priority=1,JSONPath=".spec.updateStrategy.partition",description="Pods that keep the old version."
// +kubebuilder:printcolumn:name="REVISION",type="string",priority=1,JSONPath=".status.latestRevision",description="The newest version."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp"
type SidecarSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec says which pods get which containers, and how running pods are upgraded.
	Spec SidecarSetSpec `json:"spec,omitempty"`
	// Status is what the operator observed.
	Status SidecarSetStatus `json:"status,omitempty"`
}

// SidecarSetList is a list of SidecarSets.
//
// +kubebuilder:object:root=true
type SidecarSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SidecarSet `json:"items"`
}

// SidecarSetSpec says which pods get which containers, and how running pods
// are upgraded (SPEC §1).
type SidecarSetSpec struct {
	// Selector picks pods by label. It is required: an empty one matches nothing,
	// and is refused.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Namespace limits the set to one namespace. Without it, and without
	// namespaceSelector, pods of all namespaces are selected.
	Namespace string `json:"namespace,omitempty"`

	// CustomVersion is how v1beta1 names this version of the set. Here it shows
	// while no webhook converts sets, so that none loses it; use the label
	// apps.kruise.io/sidecarset-custom-version, which wins.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	CustomVersion string `json:"customVersion,omitempty"`

	// NamespaceSelector limits the set to namespaces with these labels, which can
	// change at any time.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// InitContainers are injected into new pods, ordered by name. They have the
	// same fields as containers. Those with restartPolicy Always are upgraded in
	// place like containers, by kubelets from 1.33 on; a new image of any other
	// reaches new pods alone.
	// +listType=map
	// +listMapKey=name
	InitContainers []SidecarContainer `json:"initContainers,omitempty"`

	// Containers are injected into new pods, in this order, and upgraded in
	// place when only their images change. Each has the fields of a pod's
	// container, and podInjectPolicy, upgradeStrategy, shareVolumePolicy,
	// shareVolumeDevicePolicy, transferEnv and resourcesPolicy.
	// +listType=map
	// +listMapKey=name
	Containers []SidecarContainer `json:"containers,omitempty"`

	// Volumes that the containers may mount; only mounted ones are injected, and
	// a volume that the pod has by that name stays. Each has the fields of a
	// pod's volume.
	// +listType=map
	// +listMapKey=name
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// UpdateStrategy says how running pods take a new version.
	UpdateStrategy SidecarSetUpdateStrategy `json:"updateStrategy,omitempty"`

	// InjectionStrategy says whether and with which revision new pods are injected.
	InjectionStrategy SidecarSetInjectionStrategy `json:"injectionStrategy,omitempty"`

	// ImagePullSecrets are appended to the pods' own. The secrets must exist in
	// the pods' namespaces.
	// +listType=map
	// +listMapKey=name
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// RevisionHistoryLimit is how many revisions are kept, at least 1. One that a
	// pod has, or that is pinned for injection, always is.
	// Default: 10.
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// PatchPodMetadata writes annotations into injected pods, as far as the
	// whitelist of the configuration allows. An upgrade in place writes them
	// again, together with the image.
	// +listType=atomic
	PatchPodMetadata []SidecarSetPatchPodMetadata `json:"patchPodMetadata,omitempty"`
}

// SidecarContainer is a core container with the fields that injection needs.
// The order of the fields decides the hash (SPEC §1).
type SidecarContainer struct {
	corev1.Container `json:",inline"`

	// PodInjectPolicy places the container before or after the pod's own of the
	// same kind.
	// Default: BeforeAppContainer, for initContainers AfterAppContainer.
	PodInjectPolicy PodInjectPolicyType `json:"podInjectPolicy,omitempty"`

	// UpgradeStrategy says how running pods take a new image of this container.
	UpgradeStrategy SidecarContainerUpgradeStrategy `json:"upgradeStrategy,omitempty"`

	// ShareVolumePolicy mounts every volume of the app containers at the same
	// path, unless this container has a mount there.
	ShareVolumePolicy ShareVolumePolicy `json:"shareVolumePolicy,omitempty"`

	// ShareVolumeDevicePolicy does the same for the app containers' volumeDevices.
	ShareVolumeDevicePolicy *ShareVolumePolicy `json:"shareVolumeDevicePolicy,omitempty"`

	// TransferEnv copies environment variables of app containers. What does not
	// exist is skipped; a variable that this container has wins.
	// +listType=atomic
	TransferEnv []TransferEnvVar `json:"transferEnv,omitempty"`

	// ResourcesPolicy computes this container's resources from those of the app
	// containers when a pod is created. It excludes resources.
	ResourcesPolicy *ResourcesPolicy `json:"resourcesPolicy,omitempty"`
}

// PodInjectPolicyType places an injected container among the pod's own.
//
// +kubebuilder:validation:Enum=BeforeAppContainer;AfterAppContainer
type PodInjectPolicyType string

// Places of an injected container.
const (
	BeforeAppContainerType PodInjectPolicyType = "BeforeAppContainer"
	AfterAppContainerType  PodInjectPolicyType = "AfterAppContainer"
)

// SidecarContainerUpgradeType is cold (restart) or hot (two twins).
//
// +kubebuilder:validation:Enum=ColdUpgrade;HotUpgrade
type SidecarContainerUpgradeType string

// Kinds of upgrade.
const (
	SidecarContainerColdUpgrade SidecarContainerUpgradeType = "ColdUpgrade"
	SidecarContainerHotUpgrade  SidecarContainerUpgradeType = "HotUpgrade"
)

// SidecarContainerUpgradeStrategy says how a container takes a new image.
type SidecarContainerUpgradeStrategy struct {
	// UpgradeType ColdUpgrade restarts the container with the new image.
	// HotUpgrade injects two twins: the new image starts in the one on standby,
	// takes over, and then the other is emptied. It cannot be changed later.
	// Default: ColdUpgrade.
	UpgradeType SidecarContainerUpgradeType `json:"upgradeType,omitempty"`

	// HotUpgradeEmptyImage is what the twin on standby runs; HotUpgrade requires it.
	// It gets the same command, hooks and probes as the image, and does nothing.
	HotUpgradeEmptyImage string `json:"hotUpgradeEmptyImage,omitempty"`
}

// ShareVolumePolicyType enables or disables sharing.
//
// +kubebuilder:validation:Enum=enabled;disabled
type ShareVolumePolicyType string

// Values of a sharing policy.
const (
	ShareVolumePolicyEnabled  ShareVolumePolicyType = "enabled"
	ShareVolumePolicyDisabled ShareVolumePolicyType = "disabled"
)

// ShareVolumePolicy says whether a sidecar gets the app containers' volumes.
type ShareVolumePolicy struct {
	// Type enables or disables sharing.
	// Default: disabled.
	Type ShareVolumePolicyType `json:"type,omitempty"`
}

// TransferEnvVar copies one or more environment variables of an app container.
type TransferEnvVar struct {
	// SourceContainerName names the app container; sourceContainerNameFrom is the
	// alternative.
	SourceContainerName string `json:"sourceContainerName,omitempty"`
	// SourceContainerNameFrom reads the app container's name from the pod's metadata.
	SourceContainerNameFrom *SourceContainerNameSource `json:"sourceContainerNameFrom,omitempty"`
	// EnvName names the variable to copy.
	EnvName string `json:"envName,omitempty"`
	// EnvNames names further variables to copy.
	// +listType=atomic
	EnvNames []string `json:"envNames,omitempty"`
}

// SourceContainerNameSource is where a container's name is read from.
type SourceContainerNameSource struct {
	// FieldRef is metadata.name, metadata.labels['k'] or metadata.annotations['k'].
	FieldRef *corev1.ObjectFieldSelector `json:"fieldRef,omitempty"`
}

// TargetContainersModeType says how several app containers' resources add up.
//
// +kubebuilder:validation:Enum=sum;max
type TargetContainersModeType string

// Ways to aggregate resources.
const (
	TargetContainersModeSum TargetContainersModeType = "sum"
	TargetContainersModeMax TargetContainersModeType = "max"
)

// ResourcesPolicy computes a sidecar's resources at injection (SPEC §4.7).
type ResourcesPolicy struct {
	// TargetContainersMode takes the sum or the maximum over the app containers.
	// Required.
	TargetContainersMode TargetContainersModeType `json:"targetContainersMode,omitempty"`
	// TargetContainersNameRegex picks app containers and their native sidecars by
	// name. A pod where it picks none is refused.
	// Default: ".*".
	TargetContainersNameRegex string `json:"targetContainersNameRegex,omitempty"`
	// ResourcesExpr are the expressions, at least one: + - * /, parentheses, max(),
	// min(), decimals, percents, quantities, and the variable cpu or memory.
	ResourcesExpr ResourcesExpr `json:"resourcesExpr,omitempty"`
}

// ResourcesExpr holds expressions for limits and requests.
type ResourcesExpr struct {
	// Limits are computed from limits; none is set while an app container has none.
	Limits *ResourceExprLimits `json:"limits,omitempty"`
	// Requests are computed from requests; one that an app container lacks is 0.
	Requests *ResourceExprRequests `json:"requests,omitempty"`
}

// ResourceExprLimits holds one expression a resource.
type ResourceExprLimits struct {
	// CPU is an expression of the variable cpu, such as max(cpu*50%, 50m), rounded
	// up to whole millis.
	CPU string `json:"cpu,omitempty"`
	// Memory is an expression of the variable memory, such as memory/2 + 64Mi,
	// rounded up to whole bytes.
	Memory string `json:"memory,omitempty"`
}

// ResourceExprRequests holds one expression a resource.
type ResourceExprRequests struct {
	// CPU is an expression of the variable cpu, such as max(cpu*50%, 50m), rounded
	// up to whole millis.
	CPU string `json:"cpu,omitempty"`
	// Memory is an expression of the variable memory, such as memory/2 + 64Mi,
	// rounded up to whole bytes.
	Memory string `json:"memory,omitempty"`
}

// SidecarSetPatchPolicyType says what happens to an annotation the pod has.
//
// +kubebuilder:validation:Enum=Retain;Overwrite;MergePatchJson
type SidecarSetPatchPolicyType string

// Policies of patchPodMetadata.
const (
	SidecarSetRetainPatchPolicy    SidecarSetPatchPolicyType = "Retain"
	SidecarSetOverwritePatchPolicy SidecarSetPatchPolicyType = "Overwrite"
	SidecarSetMergePatchJSONPolicy SidecarSetPatchPolicyType = "MergePatchJson"
)

// SidecarSetPatchPodMetadata writes annotations into pods.
type SidecarSetPatchPodMetadata struct {
	// Annotations to write. For MergePatchJson the values are JSON.
	Annotations map[string]string `json:"annotations,omitempty"`
	// PatchPolicy says what becomes of an annotation that the pod has: Retain
	// keeps it, Overwrite replaces it, MergePatchJson merges into its JSON.
	// Default: Retain.
	PatchPolicy SidecarSetPatchPolicyType `json:"patchPolicy,omitempty"`
}

// SidecarSetInjectionStrategy controls what happens to new pods.
type SidecarSetInjectionStrategy struct {
	// Paused stops injection; pods that have the sidecars keep them.
	// Default: false.
	Paused bool `json:"paused,omitempty"`
	// Revision pins the revision that new pods get. Without it they get the set as
	// it is.
	Revision *SidecarSetInjectRevision `json:"revision,omitempty"`
}

// SidecarSetInjectRevisionPolicy says which new pods get the pinned revision.
//
// +kubebuilder:validation:Enum=Always;Partial
type SidecarSetInjectRevisionPolicy string

// Policies of a pinned revision.
const (
	// AlwaysSidecarSetInjectRevisionPolicy gives it to every new pod.
	AlwaysSidecarSetInjectRevisionPolicy SidecarSetInjectRevisionPolicy = "Always"
	// PartialSidecarSetInjectRevisionPolicy gives it to the share that the
	// update strategy holds back (SPEC §4.11).
	PartialSidecarSetInjectRevisionPolicy SidecarSetInjectRevisionPolicy = "Partial"
)

// SidecarSetInjectRevision names a revision by name or by custom version.
type SidecarSetInjectRevision struct {
	// CustomVersion finds the newest revision that had this custom version.
	CustomVersion *string `json:"customVersion,omitempty"`
	// RevisionName names a ControllerRevision, such as an earlier
	// status.latestRevision.
	RevisionName *string `json:"revisionName,omitempty"`
	// Policy Always gives the revision to every new pod. Partial gives it to the
	// share that updateStrategy holds back by partition, selector or pause; the
	// other pods get the set as it is.
	// Default: Always.
	Policy SidecarSetInjectRevisionPolicy `json:"policy,omitempty"`
}

// SidecarSetUpdateStrategyType says whether running pods are upgraded.
//
// +kubebuilder:validation:Enum=NotUpdate;RollingUpdate
type SidecarSetUpdateStrategyType string

// Kinds of update strategy.
const (
	NotUpdateSidecarSetStrategyType     SidecarSetUpdateStrategyType = "NotUpdate"
	RollingUpdateSidecarSetStrategyType SidecarSetUpdateStrategyType = "RollingUpdate"
)

// SidecarSetUpdateStrategy says how running pods are upgraded (SPEC §7).
type SidecarSetUpdateStrategy struct {
	// Type RollingUpdate upgrades running pods in place; NotUpdate injects new
	// pods alone.
	// Default: RollingUpdate.
	Type SidecarSetUpdateStrategyType `json:"type,omitempty"`
	// Paused holds the rollout: pods stay as they are, and new ones are injected.
	// A hot upgrade that has begun still empties its old twin.
	// Default: false.
	Paused bool `json:"paused,omitempty"`
	// Selector limits the rollout to a canary: the matched pods with these labels.
	// It excludes partition.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Partition is how many of the matched pods keep the old version: a number, or
	// a percentage, rounded up.
	// Default: 0.
	Partition *intstr.IntOrString `json:"partition,omitempty"`
	// MaxUnavailable bounds the matched pods that upgrades make unavailable at
	// once: a number, or a percentage of the matched pods, rounded up. With 0, pods
	// that are unavailable anyway are still upgraded.
	// Default: 1.
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// PriorityStrategy orders the pods. Without it, pods that serve least come
	// first: not scheduled, pending, not ready, newer.
	PriorityStrategy *UpdatePriorityStrategy `json:"priorityStrategy,omitempty"`
	// ScatterStrategy spreads pods with these labels over the whole rollout: 3 of
	// 10 take places 1, 6 and 10.
	// +listType=atomic
	ScatterStrategy UpdateScatterStrategy `json:"scatterStrategy,omitempty"`
}

// UpdatePriorityStrategy orders pods by weights or by a label's number.
type UpdatePriorityStrategy struct {
	// OrderPriority orders pods by the number at the end of labels' values, larger
	// first; earlier labels count first, and pods without any of them go first. It
	// excludes weightPriority.
	// +listType=atomic
	OrderPriority []UpdatePriorityOrderTerm `json:"orderPriority,omitempty"`
	// WeightPriority orders pods by the sum of the weights of what they match,
	// larger first. It excludes orderPriority.
	// +listType=atomic
	WeightPriority []UpdatePriorityWeightTerm `json:"weightPriority,omitempty"`
}

// UpdatePriorityOrderTerm names a label whose value ends in a number.
type UpdatePriorityOrderTerm struct {
	// OrderedKey is the label's key. Of the value sts-10 the number is 10.
	OrderedKey string `json:"orderedKey"`
}

// UpdatePriorityWeightTerm adds a weight to the pods it matches.
type UpdatePriorityWeightTerm struct {
	// Weight is 0 to 100.
	Weight int32 `json:"weight"`
	// MatchSelector picks the pods that get the weight, by label.
	MatchSelector metav1.LabelSelector `json:"matchSelector"`
}

// UpdateScatterStrategy lists the labels to spread.
type UpdateScatterStrategy []UpdateScatterTerm

// UpdateScatterTerm is one label; the value "*" stands for each value found.
type UpdateScatterTerm struct {
	// Key of the label.
	Key string `json:"key"`
	// Value of the label; "*" stands for each value found.
	Value string `json:"value"`
}

// SidecarSetStatus is what the operator observed.
type SidecarSetStatus struct {
	// ObservedGeneration is the generation that the counts belong to.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// MatchedPods are the pods injected and managed by this set.
	MatchedPods int32 `json:"matchedPods"`
	// UpdatedPods are matched pods that hold the newest version.
	UpdatedPods int32 `json:"updatedPods"`
	// ReadyPods are matched pods that are ready.
	ReadyPods int32 `json:"readyPods"`
	// UpdatedReadyPods are matched pods that are both.
	UpdatedReadyPods int32 `json:"updatedReadyPods,omitempty"`
	// LatestRevision names the current ControllerRevision.
	LatestRevision string `json:"latestRevision,omitempty"`
	// CollisionCount makes names of revisions unique.
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Rollout is the durable run that carries the set's newest generation.
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// Conditions are Progressing, Available, Degraded and Injected.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RolloutStatus points at the workflow run of a generation.
type RolloutStatus struct {
	// Generation that Temporal was given last.
	Generation int64 `json:"generation"`
	// WorkflowID of the run, the same for all generations of a set.
	WorkflowID string `json:"workflowID"`
	// URL of the run in the Temporal UI, if one is configured.
	URL string `json:"url,omitempty"`
	// Hold is set while somebody paused the run by signal or update. A run that
	// is lost is started again with it.
	Hold *RolloutHold `json:"hold,omitempty"`
}

// RolloutHold is a pause by signal or update.
type RolloutHold struct {
	// Who paused the run.
	Who string `json:"who,omitempty"`
	// Why it is paused.
	Why string `json:"why,omitempty"`
}
