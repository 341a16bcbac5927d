package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SidecarSet declares sidecar containers for the pods that the SidecarSet selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,path=sidecarsets,shortName=scs
// +kubebuilder:printcolumn:name="MATCHED",type="integer",JSONPath=".status.matchedPods",description="Matched pods."
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedPods",description="Matched pods that hold the newest version."
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyPods",description="Matched pods that are ready."
// +kubebuilder:printcolumn:name="REASON",type="string",priority=1,JSONPath=".status.conditions[?(@.type==\"Progressing\")].reason",description="State of the rollout."
// +kubebuilder:printcolumn:name="TROUBLE",type="string",priority=1,JSONPath=".status.conditions[?(@.type==\"Degraded\")].reason",description="Fault of the SidecarSet, or AsExpected."
// +kubebuilder:printcolumn:name="PAUSED-BY",type="string",priority=1,JSONPath=".status.rollout.hold.who",description="User that paused the run by signal or update."
// +kubebuilder:printcolumn:name="MAX-UNAVAILABLE",type="string",priority=1,JSONPath=".spec.updateStrategy.maxUnavailable",description="Limit of pods that are unavailable at the same time."
// +kubebuilder:printcolumn:name="PARTITION",type="string",priority=1,JSONPath=".spec.updateStrategy.partition",description="Number or percentage of pods that keep the old version."
// +kubebuilder:printcolumn:name="REVISION",type="string",priority=1,JSONPath=".status.latestRevision",description="Newest revision."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp"
type SidecarSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec selects pods, declares their sidecar containers, and configures upgrades.
	Spec SidecarSetSpec `json:"spec,omitempty"`
	// Status is the state that the operator observed.
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

// SidecarSetSpec selects pods, declares their sidecar containers, and configures
// upgrades (SPEC §1).
type SidecarSetSpec struct {
	// Selector selects pods by label. A SidecarSet without a selector, or with an empty selector, is
	// rejected.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Namespace limits the SidecarSet to one namespace. Without namespace and namespaceSelector, pods of all
	// namespaces are selected.
	Namespace string `json:"namespace,omitempty"`

	// CustomVersion is a field of v1beta1. In v1alpha1, use the label
	// apps.kruise.io/sidecarset-custom-version, which takes precedence. The field keeps the custom version of
	// v1beta1 while no webhook converts SidecarSets.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	CustomVersion string `json:"customVersion,omitempty"`

	// NamespaceSelector limits the SidecarSet to namespaces with these labels. A change of the labels of a
	// namespace changes the pods that match.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// InitContainers are injected into new pods, ordered by name. An init container has the same fields as a
	// container. Native sidecars (restartPolicy: Always) are upgraded in place like containers, if the
	// version of the kubelet is 1.33 or newer. Only new pods get the new image of an ordinary init container.
	// +listType=map
	// +listMapKey=name
	InitContainers []SidecarContainer `json:"initContainers,omitempty"`

	// Containers are injected into new pods, in this order. Running pods are upgraded in place if only images
	// change. In pods that can be resized, amounts of CPU and memory may also change. Each container has the
	// fields of a pod's container, plus podInjectPolicy, upgradeStrategy, shareVolumePolicy,
	// shareVolumeDevicePolicy, transferEnv and resourcesPolicy.
	// +listType=map
	// +listMapKey=name
	Containers []SidecarContainer `json:"containers,omitempty"`

	// Volumes are the volumes that the containers may mount. Only mounted volumes are injected. A
	// volume of the pod with the same name is kept. Each volume has the fields of a pod's volume.
	// +listType=map
	// +listMapKey=name
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// UpdateStrategy configures how running pods are upgraded to a new version.
	UpdateStrategy SidecarSetUpdateStrategy `json:"updateStrategy,omitempty"`

	// InjectionStrategy pauses the injection into new pods, or pins the injected revision.
	InjectionStrategy SidecarSetInjectionStrategy `json:"injectionStrategy,omitempty"`

	// ImagePullSecrets are appended to the imagePullSecrets of the pods. The
	// secrets must exist in the namespaces of the pods.
	// +listType=map
	// +listMapKey=name
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// RevisionHistoryLimit is the number of revisions to keep, at least 1. Revisions in use and pinned
	// revisions are always kept. Default: 10.
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// PatchPodMetadata writes annotations into injected pods. The whitelist in ConfigMap kruise-configuration
	// limits the keys. An in-place upgrade writes the annotations again, together with the
	// image.
	// +listType=atomic
	PatchPodMetadata []SidecarSetPatchPodMetadata `json:"patchPodMetadata,omitempty"`
}

// SidecarContainer is a container of a pod, with the fields that injection needs. The hash of the content
// depends on the order of the fields (SPEC §1).
type SidecarContainer struct {
	corev1.Container `json:",inline"`

	// PodInjectPolicy places the container before or after the pod's own
	// containers of the same kind.
	// Default: BeforeAppContainer, for initContainers AfterAppContainer.
	PodInjectPolicy PodInjectPolicyType `json:"podInjectPolicy,omitempty"`

	// UpgradeStrategy configures how a new image of this container reaches running
	// pods.
	UpgradeStrategy SidecarContainerUpgradeStrategy `json:"upgradeStrategy,omitempty"`

	// ShareVolumePolicy mounts every volume of the app containers at the same
	// path, unless this container has its own mount at that path.
	ShareVolumePolicy ShareVolumePolicy `json:"shareVolumePolicy,omitempty"`

	// ShareVolumeDevicePolicy mounts every volumeDevice of the app containers at the same path,
	// unless this container has its own volumeDevice at that path.
	ShareVolumeDevicePolicy *ShareVolumePolicy `json:"shareVolumeDevicePolicy,omitempty"`

	// TransferEnv copies environment variables of app containers. Missing
	// containers and variables are skipped. Variables of this container take
	// precedence.
	// +listType=atomic
	TransferEnv []TransferEnvVar `json:"transferEnv,omitempty"`

	// ResourcesPolicy computes the resources of this container from the resources of the app containers when
	// a pod is created. ResourcesPolicy and resources exclude each other.
	ResourcesPolicy *ResourcesPolicy `json:"resourcesPolicy,omitempty"`
}

// PodInjectPolicyType places an injected container among the pod's own containers.
//
// +kubebuilder:validation:Enum=BeforeAppContainer;AfterAppContainer
type PodInjectPolicyType string

// These are the places of an injected container.
const (
	BeforeAppContainerType PodInjectPolicyType = "BeforeAppContainer"
	AfterAppContainerType  PodInjectPolicyType = "AfterAppContainer"
)

// SidecarContainerUpgradeType is cold (a restart) or hot (two twin containers).
//
// +kubebuilder:validation:Enum=ColdUpgrade;HotUpgrade
type SidecarContainerUpgradeType string

// These are the types of upgrade.
const (
	SidecarContainerColdUpgrade SidecarContainerUpgradeType = "ColdUpgrade"
	SidecarContainerHotUpgrade  SidecarContainerUpgradeType = "HotUpgrade"
)

// SidecarContainerUpgradeStrategy configures how a container gets a new image.
type SidecarContainerUpgradeStrategy struct {
	// UpgradeType is ColdUpgrade or HotUpgrade, and is immutable. ColdUpgrade restarts the container with the
	// new image. HotUpgrade injects two twin containers. The new image starts in the standby twin and takes
	// over. Then the former active twin gets the empty image.
	// Default: ColdUpgrade.
	UpgradeType SidecarContainerUpgradeType `json:"upgradeType,omitempty"`

	// HotUpgradeEmptyImage is the image of the standby twin between upgrades. HotUpgrade requires this field.
	// The empty image runs with the same command, hooks and probes as the image of the container, and must
	// have no effect.
	HotUpgradeEmptyImage string `json:"hotUpgradeEmptyImage,omitempty"`
}

// ShareVolumePolicyType enables or disables sharing.
//
// +kubebuilder:validation:Enum=enabled;disabled
type ShareVolumePolicyType string

// These are the values of a sharing policy.
const (
	ShareVolumePolicyEnabled  ShareVolumePolicyType = "enabled"
	ShareVolumePolicyDisabled ShareVolumePolicyType = "disabled"
)

// ShareVolumePolicy enables or disables sharing of the app containers' volumes.
type ShareVolumePolicy struct {
	// Type enables or disables sharing.
	// Default: disabled.
	Type ShareVolumePolicyType `json:"type,omitempty"`
}

// TransferEnvVar copies one or more environment variables of an app container.
type TransferEnvVar struct {
	// SourceContainerName is the name of the app container. Set either sourceContainerName or
	// sourceContainerNameFrom.
	SourceContainerName string `json:"sourceContainerName,omitempty"`
	// SourceContainerNameFrom reads the name of the app container from the metadata
	// of the pod.
	SourceContainerNameFrom *SourceContainerNameSource `json:"sourceContainerNameFrom,omitempty"`
	// EnvName is the name of the variable to copy.
	EnvName string `json:"envName,omitempty"`
	// EnvNames are the names of further variables to copy.
	// +listType=atomic
	EnvNames []string `json:"envNames,omitempty"`
}

// SourceContainerNameSource is the source of a container's name.
type SourceContainerNameSource struct {
	// FieldRef is metadata.name, metadata.labels['k'] or metadata.annotations['k'].
	FieldRef *corev1.ObjectFieldSelector `json:"fieldRef,omitempty"`
}

// TargetContainersModeType is the way to aggregate the resources of several app containers.
//
// +kubebuilder:validation:Enum=sum;max
type TargetContainersModeType string

// These are the ways to aggregate resources.
const (
	TargetContainersModeSum TargetContainersModeType = "sum"
	TargetContainersModeMax TargetContainersModeType = "max"
)

// ResourcesPolicy computes a sidecar's resources at injection (SPEC §4.7).
type ResourcesPolicy struct {
	// TargetContainersMode selects the sum or the maximum over the app containers, and is required.
	TargetContainersMode TargetContainersModeType `json:"targetContainersMode,omitempty"`
	// TargetContainersNameRegex selects app containers and native sidecars of the
	// pod by name. A pod without a matching container is rejected.
	// Default: ".*".
	TargetContainersNameRegex string `json:"targetContainersNameRegex,omitempty"`
	// ResourcesExpr contains at least one expression. An expression consists of
	// + - * /, parentheses, max(), min(), decimals, percentages, quantities, and
	// the variable cpu or memory.
	ResourcesExpr ResourcesExpr `json:"resourcesExpr,omitempty"`
}

// ResourcesExpr contains expressions for limits and requests.
type ResourcesExpr struct {
	// Limits are computed from the limits of the app containers. If an app container has no limit, no limit
	// is set.
	Limits *ResourceExprLimits `json:"limits,omitempty"`
	// Requests are computed from the requests of the app containers. A missing
	// request counts as 0.
	Requests *ResourceExprRequests `json:"requests,omitempty"`
}

// ResourceExprLimits contains one expression for each resource.
type ResourceExprLimits struct {
	// CPU is an expression with the variable cpu, such as max(cpu*50%, 50m). The
	// result is rounded up to whole millicores.
	CPU string `json:"cpu,omitempty"`
	// Memory is an expression with the variable memory, such as memory/2 + 64Mi.
	// The result is rounded up to whole bytes.
	Memory string `json:"memory,omitempty"`
}

// ResourceExprRequests contains one expression for each resource.
type ResourceExprRequests struct {
	// CPU is an expression with the variable cpu, such as max(cpu*50%, 50m). The
	// result is rounded up to whole millicores.
	CPU string `json:"cpu,omitempty"`
	// Memory is an expression with the variable memory, such as memory/2 + 64Mi.
	// The result is rounded up to whole bytes.
	Memory string `json:"memory,omitempty"`
}

// SidecarSetPatchPolicyType is the policy for annotations that the pod already has.
//
// +kubebuilder:validation:Enum=Retain;Overwrite;MergePatchJson
type SidecarSetPatchPolicyType string

// These are the policies of patchPodMetadata.
const (
	SidecarSetRetainPatchPolicy    SidecarSetPatchPolicyType = "Retain"
	SidecarSetOverwritePatchPolicy SidecarSetPatchPolicyType = "Overwrite"
	SidecarSetMergePatchJSONPolicy SidecarSetPatchPolicyType = "MergePatchJson"
)

// SidecarSetPatchPodMetadata writes annotations into pods.
type SidecarSetPatchPodMetadata struct {
	// Annotations are the annotations to write. With MergePatchJson, the values are JSON.
	Annotations map[string]string `json:"annotations,omitempty"`
	// PatchPolicy applies to annotations that the pod already has. Retain keeps the value,
	// Overwrite replaces the value, and MergePatchJson merges JSON into the value.
	// Default: Retain.
	PatchPolicy SidecarSetPatchPolicyType `json:"patchPolicy,omitempty"`
}

// SidecarSetInjectionStrategy configures injection into new pods.
type SidecarSetInjectionStrategy struct {
	// Paused stops injection into new pods. Injected pods keep their sidecars.
	// Default: false.
	Paused bool `json:"paused,omitempty"`
	// Revision pins the revision that new pods get. Without a pinned revision, new pods get the current spec.
	Revision *SidecarSetInjectRevision `json:"revision,omitempty"`
}

// SidecarSetInjectRevisionPolicy selects the new pods that get the pinned revision.
//
// +kubebuilder:validation:Enum=Always;Partial
type SidecarSetInjectRevisionPolicy string

// These are the policies of a pinned revision.
const (
	// AlwaysSidecarSetInjectRevisionPolicy selects every new pod.
	AlwaysSidecarSetInjectRevisionPolicy SidecarSetInjectRevisionPolicy = "Always"
	// PartialSidecarSetInjectRevisionPolicy selects the share of new pods that
	// the update strategy keeps at the old version (SPEC §4.11).
	PartialSidecarSetInjectRevisionPolicy SidecarSetInjectRevisionPolicy = "Partial"
)

// SidecarSetInjectRevision refers to a revision by name or by custom version.
type SidecarSetInjectRevision struct {
	// CustomVersion refers to the newest revision with this custom version.
	CustomVersion *string `json:"customVersion,omitempty"`
	// RevisionName is the name of a ControllerRevision, such as a former
	// status.latestRevision.
	RevisionName *string `json:"revisionName,omitempty"`
	// Policy is Always or Partial. Always injects the revision into every new pod. Partial injects the
	// revision only into the share of new pods that updateStrategy keeps at the old version (by partition,
	// selector or paused). The other new pods get the current spec.
	// Default: Always.
	Policy SidecarSetInjectRevisionPolicy `json:"policy,omitempty"`
}

// SidecarSetUpdateStrategyType enables or disables upgrades of running pods.
//
// +kubebuilder:validation:Enum=NotUpdate;RollingUpdate
type SidecarSetUpdateStrategyType string

// These are the types of update strategy.
const (
	NotUpdateSidecarSetStrategyType     SidecarSetUpdateStrategyType = "NotUpdate"
	RollingUpdateSidecarSetStrategyType SidecarSetUpdateStrategyType = "RollingUpdate"
)

// SidecarSetUpdateStrategy configures upgrades of running pods (SPEC §7).
type SidecarSetUpdateStrategy struct {
	// Type is RollingUpdate or NotUpdate. RollingUpdate upgrades running pods in place. With NotUpdate, only
	// new pods get a new version.
	// Default: RollingUpdate.
	Type SidecarSetUpdateStrategyType `json:"type,omitempty"`
	// Paused pauses the rollout. Running pods are not upgraded, but new pods are injected. The standby twin
	// of a hot upgrade in progress is still reset.
	// Default: false.
	Paused bool `json:"paused,omitempty"`
	// Selector limits the rollout to a canary: the matched pods with these labels. Selector and partition
	// exclude each other.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Partition is the number of matched pods that keep the old version, or a
	// percentage of the matched pods, rounded up.
	// Default: 0.
	Partition *intstr.IntOrString `json:"partition,omitempty"`
	// MaxUnavailable limits the matched pods that are unavailable because of an upgrade. The
	// limit is a number, or a percentage of the matched pods, rounded up. Pods that are
	// unavailable for another reason are upgraded even if MaxUnavailable is 0.
	// Default: 1.
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// PriorityStrategy orders the pods of the rollout. Without priorityStrategy, pods that are not scheduled
	// come first, then pending, unready and newer pods.
	PriorityStrategy *UpdatePriorityStrategy `json:"priorityStrategy,omitempty"`
	// ScatterStrategy spreads pods with these labels over the whole rollout. For
	// example, 3 of 10 pods get the positions 1, 6 and 10.
	// +listType=atomic
	ScatterStrategy UpdateScatterStrategy `json:"scatterStrategy,omitempty"`
}

// UpdatePriorityStrategy orders pods by weight, or by the number in a label.
type UpdatePriorityStrategy struct {
	// OrderPriority orders pods by the number at the end of a label's value, larger numbers first. An earlier
	// label has precedence over a later label. Pods without any of the labels come first. OrderPriority and
	// weightPriority exclude each other.
	// +listType=atomic
	OrderPriority []UpdatePriorityOrderTerm `json:"orderPriority,omitempty"`
	// WeightPriority orders pods by the sum of the weights of all matching terms, larger sums first.
	// WeightPriority and orderPriority exclude each other.
	// +listType=atomic
	WeightPriority []UpdatePriorityWeightTerm `json:"weightPriority,omitempty"`
}

// UpdatePriorityOrderTerm is a label whose value ends in a number.
type UpdatePriorityOrderTerm struct {
	// OrderedKey is the key of the label. The number of the value sts-10 is 10.
	OrderedKey string `json:"orderedKey"`
}

// UpdatePriorityWeightTerm adds a weight to the pods that match a selector.
type UpdatePriorityWeightTerm struct {
	// Weight is a number from 0 to 100.
	Weight int32 `json:"weight"`
	// MatchSelector selects the pods that get the weight, by label.
	MatchSelector metav1.LabelSelector `json:"matchSelector"`
}

// UpdateScatterStrategy is the list of labels to spread.
type UpdateScatterStrategy []UpdateScatterTerm

// UpdateScatterTerm is one label to spread.
type UpdateScatterTerm struct {
	// Key is the key of the label.
	Key string `json:"key"`
	// Value is the value of the label. "*" means each value that the matched pods have.
	Value string `json:"value"`
}
