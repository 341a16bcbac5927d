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
// +kubebuilder:resource:scope=Cluster,path=sidecarsets
// +kubebuilder:printcolumn:name="MATCHED",type="integer",JSONPath=".status.matchedPods",description="Pods injected and managed by this set."
// +kubebuilder:printcolumn:name="UPDATED",type="integer",JSONPath=".status.updatedPods",description="Matched pods that hold the newest version."
// +kubebuilder:printcolumn:name="READY",type="integer",JSONPath=".status.readyPods",description="Matched pods that are ready."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp"
type SidecarSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SidecarSetSpec            `json:"spec,omitempty"`
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
	// Selector picks pods by label. Required; an empty one matches nothing.
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
	// same fields as containers.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	InitContainers []v1alpha1.SidecarContainer `json:"initContainers,omitempty"`

	// Containers are injected into new pods, in this order, and upgraded in
	// place when only their images change. Each has the fields of a pod's
	// container, and podInjectPolicy, upgradeStrategy, shareVolumePolicy,
	// shareVolumeDevicePolicy, transferEnv and resourcesPolicy.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Containers []v1alpha1.SidecarContainer `json:"containers,omitempty"`

	// Volumes that the containers may mount; only mounted ones are injected.
	// Each has the fields of a pod's volume.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// UpdateStrategy says how running pods take a new version.
	UpdateStrategy v1alpha1.SidecarSetUpdateStrategy `json:"updateStrategy,omitempty"`

	// InjectionStrategy says whether and with which revision new pods are injected.
	InjectionStrategy v1alpha1.SidecarSetInjectionStrategy `json:"injectionStrategy,omitempty"`

	// ImagePullSecrets are appended to the pods' own. The secrets must exist in
	// the pods' namespaces.
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// RevisionHistoryLimit is how many revisions are kept. Default 10, at least 1.
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// PatchPodMetadata writes annotations into injected pods, as far as the
	// whitelist of the configuration allows.
	PatchPodMetadata []v1alpha1.SidecarSetPatchPodMetadata `json:"patchPodMetadata,omitempty"`
}
