package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// SidecarSet declares sidecar containers for the pods it selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
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
	Status v1alpha1.SidecarSetStatus `json:"status,omitempty"`
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

	// Namespace is how v1alpha1 limits the set to one namespace. Here it shows
	// while no webhook converts sets, so that none loses it; use
	// namespaceSelector.
	Namespace string `json:"namespace,omitempty"`

	// NamespaceSelector limits the set to namespaces with these labels. For one
	// namespace, select its label kubernetes.io/metadata.name.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// CustomVersion names this version of the set, for injectionStrategy.revision.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	CustomVersion string `json:"customVersion,omitempty"`

	// InitContainers are injected into new pods, ordered by name. They have the
	// same fields as containers. Those with restartPolicy Always are upgraded in
	// place like containers, by kubelets from 1.33 on; a new image of any other
	// reaches new pods alone.
	// +listType=map
	// +listMapKey=name
	InitContainers []v1alpha1.SidecarContainer `json:"initContainers,omitempty"`

	// Containers are injected into new pods, in this order, and upgraded in
	// place when only their images change. Each has the fields of a pod's
	// container, and podInjectPolicy, upgradeStrategy, shareVolumePolicy,
	// shareVolumeDevicePolicy, transferEnv and resourcesPolicy.
	// +listType=map
	// +listMapKey=name
	Containers []v1alpha1.SidecarContainer `json:"containers,omitempty"`

	// Volumes that the containers may mount; only mounted ones are injected, and
	// a volume that the pod has by that name stays. Each has the fields of a
	// pod's volume.
	// +listType=map
	// +listMapKey=name
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// UpdateStrategy says how running pods take a new version.
	UpdateStrategy v1alpha1.SidecarSetUpdateStrategy `json:"updateStrategy,omitempty"`

	// InjectionStrategy says whether and with which revision new pods are injected.
	InjectionStrategy v1alpha1.SidecarSetInjectionStrategy `json:"injectionStrategy,omitempty"`

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
	PatchPodMetadata []v1alpha1.SidecarSetPatchPodMetadata `json:"patchPodMetadata,omitempty"`
}
