package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// SidecarSet declares sidecar containers for the pods that the SidecarSet selects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
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

// SidecarSetSpec selects pods, declares their sidecar containers, and configures
// upgrades (SPEC §1).
type SidecarSetSpec struct {
	// Selector selects pods by label. A SidecarSet without a selector, or with an empty selector, is
	// rejected.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// Namespace is a field of v1alpha1. In v1beta1, use namespaceSelector. The field keeps the namespace of
	// v1alpha1 while no webhook converts SidecarSets.
	Namespace string `json:"namespace,omitempty"`

	// NamespaceSelector limits the SidecarSet to namespaces with these labels. For
	// a single namespace, use the label kubernetes.io/metadata.name.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// CustomVersion is a name for the current content of the SidecarSet, to which injectionStrategy.revision
	// can refer.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
	CustomVersion string `json:"customVersion,omitempty"`

	// InitContainers are injected into new pods, ordered by name. An init container has the same fields as a
	// container. Native sidecars (restartPolicy: Always) are upgraded in place like containers, if the
	// version of the kubelet is 1.33 or newer. Only new pods get the new image of an ordinary init container.
	// +listType=map
	// +listMapKey=name
	InitContainers []v1alpha1.SidecarContainer `json:"initContainers,omitempty"`

	// Containers are injected into new pods, in this order. Running pods are upgraded in place if only images
	// change. In pods that can be resized, amounts of CPU and memory may also change. Each container has the
	// fields of a pod's container, plus podInjectPolicy, upgradeStrategy, shareVolumePolicy,
	// shareVolumeDevicePolicy, transferEnv and resourcesPolicy.
	// +listType=map
	// +listMapKey=name
	Containers []v1alpha1.SidecarContainer `json:"containers,omitempty"`

	// Volumes are the volumes that the containers may mount. Only mounted volumes are injected. A
	// volume of the pod with the same name is kept. Each volume has the fields of a pod's volume.
	// +listType=map
	// +listMapKey=name
	Volumes []corev1.Volume `json:"volumes,omitempty"`

	// UpdateStrategy configures how running pods are upgraded to a new version.
	UpdateStrategy v1alpha1.SidecarSetUpdateStrategy `json:"updateStrategy,omitempty"`

	// InjectionStrategy pauses the injection into new pods, or pins the injected revision.
	InjectionStrategy v1alpha1.SidecarSetInjectionStrategy `json:"injectionStrategy,omitempty"`

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
	PatchPodMetadata []v1alpha1.SidecarSetPatchPodMetadata `json:"patchPodMetadata,omitempty"`
}
