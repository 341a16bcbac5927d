package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RolloutNotUpgradable configures the reaction to pods that cannot be upgraded in place to the newest
// content, and to pods that match but were never injected.
type RolloutNotUpgradable struct {
	// Action is Leave or Evict. Leave, the default, keeps the pods. Evict evicts the pods through the eviction
	// API after the rollout of the SidecarSet has ended, so that their controllers recreate the pods. Pods
	// without a controller, and pods that run to completion, are never evicted.
	// +kubebuilder:validation:Enum=Leave;Evict
	Action NotUpgradableAction `json:"action,omitempty"`
	// MaxUnavailablePerOwner limits the unavailable pods of one owner, such as a Deployment, including the
	// evicted pods. While the limit is reached, no ready pod of the owner is evicted. The default is 1.
	// +kubebuilder:validation:Minimum=1
	MaxUnavailablePerOwner int32 `json:"maxUnavailablePerOwner,omitempty"`
	// Deadline is the time within which all pods that may be evicted have to be recreated, in hours or days,
	// such as 14d. After the deadline, status reports the evictions as overdue, and the evictions continue.
	// +kubebuilder:validation:MaxLength=5
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,3}[hd]$`
	Deadline string `json:"deadline,omitempty"`
}

// NotUpgradableAction is the reaction to pods that cannot be upgraded in place.
type NotUpgradableAction string

// These are the reactions to pods that cannot be upgraded in place.
const (
	LeaveNotUpgradable NotUpgradableAction = "Leave"
	EvictNotUpgradable NotUpgradableAction = "Evict"
)

// Evicts reports whether the policy evicts pods that cannot be upgraded in place.
func (s *RolloutPolicySpec) Evicts() bool {
	return s.NotUpgradable != nil && s.NotUpgradable.Action == EvictNotUpgradable
}

// EvictionStatus is the state of the evictions of a RolloutPolicy, as reported by the run of the evictions.
type EvictionStatus struct {
	// WorkflowID is the id of the workflow that evicts the pods.
	WorkflowID string `json:"workflowID"`
	// Message describes the remaining pods, and why they wait. If a fault stops the run, Message begins with
	// the fault.
	Message string `json:"message,omitempty"`
	// Remaining is the number of pods that still have to be recreated.
	Remaining int32 `json:"remaining"`
	// Evicted is the number of pods that the run has evicted.
	Evicted int32 `json:"evicted"`
	// Since is the time at which the run first found pods that may be evicted. Since is nil while no such
	// pods exist. The deadline counts from Since.
	Since *metav1.Time `json:"since,omitempty"`
	// Overdue is set if pods remain after the deadline.
	Overdue bool `json:"overdue,omitempty"`
	// Paused is set while the evictions are paused by signal.
	Paused bool `json:"paused,omitempty"`
	// PausedBy is the user that paused the evictions.
	PausedBy string `json:"pausedBy,omitempty"`
	// PauseReason is the reason that the user gave for the pause.
	PauseReason string `json:"pauseReason,omitempty"`
	// PausedAt is the time of the pause, by the clock of Temporal.
	PausedAt *metav1.Time `json:"pausedAt,omitempty"`
	// Failed lists the owners with a failed eviction: the replacement of an evicted pod lacks the newest
	// content, or was not ready in time. The other pods of these owners are not evicted.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Failed []FailedEviction `json:"failed,omitempty"`
}

// FailedEviction is an owner with a failed eviction: the replacement of an evicted pod lacks the newest
// content, or was not ready in time. No further pod of the owner is evicted until the generation of the
// SidecarSet or of the RolloutPolicy changes, or a user resumes the evictions.
type FailedEviction struct {
	// SidecarSet is the SidecarSet for which the pod was evicted.
	SidecarSet string `json:"sidecarSet"`
	// Generation is the generation of the SidecarSet at the time of the eviction.
	Generation int64 `json:"generation"`
	// Hash is the hash of the content of the SidecarSet at the time of the eviction. Hash is empty if an older
	// worker recorded the failure.
	Hash string `json:"hash,omitempty"`
	// SidecarSetUID is the uid of the SidecarSet.
	SidecarSetUID types.UID `json:"sidecarSetUID"`
	Namespace     string    `json:"namespace"`
	// Kind and Name identify the controller of the evicted pod, or the Deployment if the controller is a
	// ReplicaSet of a Deployment.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Reason is the reason why the eviction failed.
	Reason string `json:"reason"`
}
