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
// +kubebuilder:resource:scope=Cluster,path=sidecarsets
// +kubebuilder:printcolumn:name="MATCHED",type="integer",JSONPath=".status.matchedPods",description="Pods injected and managed by this set."
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedPods",description="Matched pods that hold the newest version."
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyPods",description="Matched pods that are ready."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp"
type SidecarSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SidecarSetSpec   `json:"spec,omitempty"`
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
	// Selector picks pods by label. Required; an empty one matches nothing.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Namespace limits the set to one namespace.
	Namespace string `json:"namespace,omitempty"`

	// CustomVersion is how v1beta1 names this version of the set. Here it shows
	// while no webhook converts sets, so that none loses it; use the label
	// apps.kruise.io/sidecarset-custom-version, which wins.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	CustomVersion string `json:"customVersion,omitempty"`

	// NamespaceSelector limits the set to namespaces with these labels.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// InitContainers are injected into new pods, ordered by name. They have the
	// same fields as containers.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	InitContainers []SidecarContainer `json:"initContainers,omitempty"`

	// Containers are injected into new pods, in this order, and upgraded in
	// place when only their images change. Each has the fields of a pod's
	// container, and podInjectPolicy, upgradeStrategy, shareVolumePolicy,
	// shareVolumeDevicePolicy, transferEnv and resourcesPolicy.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Containers []SidecarContainer `json:"containers,omitempty"`

	// Volumes that the containers may mount; only mounted ones are injected.
	// Each has the fields of a pod's volume.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// UpdateStrategy says how running pods take a new version.
	UpdateStrategy SidecarSetUpdateStrategy `json:"updateStrategy,omitempty"`

	// InjectionStrategy says whether and with which revision new pods are injected.
	InjectionStrategy SidecarSetInjectionStrategy `json:"injectionStrategy,omitempty"`

	// ImagePullSecrets are appended to the pods' own. The secrets must exist in
	// the pods' namespaces.
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// RevisionHistoryLimit is how many revisions are kept. Default 10, at least 1.
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// PatchPodMetadata writes annotations into injected pods, as far as the
	// whitelist of the configuration allows.
	PatchPodMetadata []SidecarSetPatchPodMetadata `json:"patchPodMetadata,omitempty"`
}

// SidecarContainer is a core container with the fields that injection needs.
// The order of the fields decides the hash (SPEC §1).
type SidecarContainer struct {
	corev1.Container `json:",inline"`

	// PodInjectPolicy places the container before or after the pod's own.
	PodInjectPolicy PodInjectPolicyType `json:"podInjectPolicy,omitempty"`

	// UpgradeStrategy chooses cold or hot upgrades.
	UpgradeStrategy SidecarContainerUpgradeStrategy `json:"upgradeStrategy,omitempty"`

	// ShareVolumePolicy shares the app containers' volume mounts.
	ShareVolumePolicy ShareVolumePolicy `json:"shareVolumePolicy,omitempty"`

	// ShareVolumeDevicePolicy shares the app containers' volume devices.
	ShareVolumeDevicePolicy *ShareVolumePolicy `json:"shareVolumeDevicePolicy,omitempty"`

	// TransferEnv copies environment variables of app containers.
	TransferEnv []TransferEnvVar `json:"transferEnv,omitempty"`

	// ResourcesPolicy computes resources from those of the app containers.
	ResourcesPolicy *ResourcesPolicy `json:"resourcesPolicy,omitempty"`
}

// PodInjectPolicyType places an injected container among the pod's own.
type PodInjectPolicyType string

// Places of an injected container.
const (
	BeforeAppContainerType PodInjectPolicyType = "BeforeAppContainer"
	AfterAppContainerType  PodInjectPolicyType = "AfterAppContainer"
)

// SidecarContainerUpgradeType is cold (restart) or hot (two twins).
type SidecarContainerUpgradeType string

// Kinds of upgrade.
const (
	SidecarContainerColdUpgrade SidecarContainerUpgradeType = "ColdUpgrade"
	SidecarContainerHotUpgrade  SidecarContainerUpgradeType = "HotUpgrade"
)

// SidecarContainerUpgradeStrategy says how a container takes a new image.
type SidecarContainerUpgradeStrategy struct {
	// UpgradeType is ColdUpgrade unless set.
	UpgradeType SidecarContainerUpgradeType `json:"upgradeType,omitempty"`

	// HotUpgradeEmptyImage is what the standby twin of a hot sidecar runs.
	HotUpgradeEmptyImage string `json:"hotUpgradeEmptyImage,omitempty"`
}

// ShareVolumePolicyType enables or disables sharing.
type ShareVolumePolicyType string

// Values of a sharing policy.
const (
	ShareVolumePolicyEnabled  ShareVolumePolicyType = "enabled"
	ShareVolumePolicyDisabled ShareVolumePolicyType = "disabled"
)

// ShareVolumePolicy says whether a sidecar gets the app containers' volumes.
type ShareVolumePolicy struct {
	Type ShareVolumePolicyType `json:"type,omitempty"`
}

// TransferEnvVar copies one or more environment variables of an app container.
type TransferEnvVar struct {
	// SourceContainerName names the app container.
	SourceContainerName string `json:"sourceContainerName,omitempty"`
	// SourceContainerNameFrom reads that name from the pod's metadata.
	SourceContainerNameFrom *SourceContainerNameSource `json:"sourceContainerNameFrom,omitempty"`
	// EnvName names the variable.
	EnvName string `json:"envName,omitempty"`
	// EnvNames names several.
	EnvNames []string `json:"envNames,omitempty"`
}

// SourceContainerNameSource is where a container's name is read from.
type SourceContainerNameSource struct {
	// FieldRef is metadata.name, metadata.labels['k'] or metadata.annotations['k'].
	FieldRef *corev1.ObjectFieldSelector `json:"fieldRef,omitempty"`
}

// TargetContainersModeType says how several app containers' resources add up.
type TargetContainersModeType string

// Ways to aggregate resources.
const (
	TargetContainersModeSum TargetContainersModeType = "sum"
	TargetContainersModeMax TargetContainersModeType = "max"
)

// ResourcesPolicy computes a sidecar's resources at injection (SPEC §4.7).
type ResourcesPolicy struct {
	// TargetContainersMode is sum or max.
	TargetContainersMode TargetContainersModeType `json:"targetContainersMode,omitempty"`
	// TargetContainersNameRegex picks app containers by name. Default ".*".
	TargetContainersNameRegex string `json:"targetContainersNameRegex,omitempty"`
	// ResourcesExpr are the expressions.
	ResourcesExpr ResourcesExpr `json:"resourcesExpr,omitempty"`
}

// ResourcesExpr holds expressions for limits and requests.
type ResourcesExpr struct {
	Limits   *ResourceExprLimits   `json:"limits,omitempty"`
	Requests *ResourceExprRequests `json:"requests,omitempty"`
}

// ResourceExprLimits holds one expression a resource.
type ResourceExprLimits struct {
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
}

// ResourceExprRequests holds one expression a resource.
type ResourceExprRequests struct {
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
}

// SidecarSetPatchPolicyType says what happens to an annotation the pod has.
type SidecarSetPatchPolicyType string

// Policies of patchPodMetadata.
const (
	SidecarSetRetainPatchPolicy    SidecarSetPatchPolicyType = "Retain"
	SidecarSetOverwritePatchPolicy SidecarSetPatchPolicyType = "Overwrite"
	SidecarSetMergePatchJSONPolicy SidecarSetPatchPolicyType = "MergePatchJson"
)

// SidecarSetPatchPodMetadata writes annotations into pods.
type SidecarSetPatchPodMetadata struct {
	Annotations map[string]string         `json:"annotations,omitempty"`
	PatchPolicy SidecarSetPatchPolicyType `json:"patchPolicy,omitempty"`
}

// SidecarSetInjectionStrategy controls what happens to new pods.
type SidecarSetInjectionStrategy struct {
	// Paused stops injection; pods that have the sidecars keep them.
	Paused bool `json:"paused,omitempty"`
	// Revision pins the revision that new pods get.
	Revision *SidecarSetInjectRevision `json:"revision,omitempty"`
}

// SidecarSetInjectRevisionPolicy says which new pods get the pinned revision.
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
	CustomVersion *string                        `json:"customVersion,omitempty"`
	RevisionName  *string                        `json:"revisionName,omitempty"`
	Policy        SidecarSetInjectRevisionPolicy `json:"policy,omitempty"`
}

// SidecarSetUpdateStrategyType says whether running pods are upgraded.
type SidecarSetUpdateStrategyType string

// Kinds of update strategy.
const (
	NotUpdateSidecarSetStrategyType     SidecarSetUpdateStrategyType = "NotUpdate"
	RollingUpdateSidecarSetStrategyType SidecarSetUpdateStrategyType = "RollingUpdate"
)

// SidecarSetUpdateStrategy says how running pods are upgraded (SPEC §7).
type SidecarSetUpdateStrategy struct {
	// Type is RollingUpdate unless set.
	Type SidecarSetUpdateStrategyType `json:"type,omitempty"`
	// Paused holds the rollout.
	Paused bool `json:"paused,omitempty"`
	// Selector limits the rollout to a canary; partition does not apply then.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Partition is how many pods keep the old version: number or percent. Default 0.
	Partition *intstr.IntOrString `json:"partition,omitempty"`
	// MaxUnavailable bounds the pods that are unavailable at once: number or percent. Default 1.
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// PriorityStrategy orders the pods.
	PriorityStrategy *UpdatePriorityStrategy `json:"priorityStrategy,omitempty"`
	// ScatterStrategy spreads pods with these labels over the rollout.
	ScatterStrategy UpdateScatterStrategy `json:"scatterStrategy,omitempty"`
}

// UpdatePriorityStrategy orders pods by weights or by a label's number.
type UpdatePriorityStrategy struct {
	OrderPriority  []UpdatePriorityOrderTerm  `json:"orderPriority,omitempty"`
	WeightPriority []UpdatePriorityWeightTerm `json:"weightPriority,omitempty"`
}

// UpdatePriorityOrderTerm names a label whose value ends in a number.
type UpdatePriorityOrderTerm struct {
	OrderedKey string `json:"orderedKey"`
}

// UpdatePriorityWeightTerm adds a weight to the pods it matches.
type UpdatePriorityWeightTerm struct {
	// Weight is 0 to 100.
	Weight        int32                `json:"weight"`
	MatchSelector metav1.LabelSelector `json:"matchSelector"`
}

// UpdateScatterStrategy lists the labels to spread.
type UpdateScatterStrategy []UpdateScatterTerm

// UpdateScatterTerm is one label; the value "*" stands for each value found.
type UpdateScatterTerm struct {
	Key   string `json:"key"`
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
