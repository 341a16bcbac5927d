package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RolloutAction pauses, resumes, approves, promotes, aborts, retries or permits the rollout of a SidecarSet.
// The operator sends the action to the run, and writes the answer of the run into status. An action that is
// not carried out within ten minutes is rejected. An action is deleted one hour after the phase has become
// Succeeded or Rejected.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=roa
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="SIDECARSET",type="string",JSONPath=".spec.sidecarSet",description="SidecarSet of the rollout."
// +kubebuilder:printcolumn:name="VERB",type="string",JSONPath=".spec.verb",description="What the action does."
// +kubebuilder:printcolumn:name="PHASE",type="string",JSONPath=".status.phase",description="Whether the action is carried out."
// +kubebuilder:printcolumn:name="BY",type="string",JSONPath=".spec.requestedBy",description="User that created the action."
// +kubebuilder:printcolumn:name="REASON",type="string",JSONPath=".spec.reason",description="Reason of the action."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp"
type RolloutAction struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RolloutActionSpec   `json:"spec"`
	Status RolloutActionStatus `json:"status,omitzero"`
}

// RolloutActionList is a list of RolloutActions.
//
// +kubebuilder:object:root=true
type RolloutActionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RolloutAction `json:"items"`
}

// RolloutVerb is the effect of an action on a rollout.
//
// +kubebuilder:validation:Enum=pause;resume;approve;promote;abort;retry;permit
type RolloutVerb string

// These are the verbs of actions. Each value is the name of the Temporal update that the operator sends to the
// run.
const (
	VerbPause   RolloutVerb = "pause"
	VerbResume  RolloutVerb = "resume"
	VerbApprove RolloutVerb = "approve"
	VerbPromote RolloutVerb = "promote"
	VerbAbort   RolloutVerb = "abort"
	VerbRetry   RolloutVerb = "retry"
	VerbPermit  RolloutVerb = "permit"
)

// RolloutActionSpec defines the action. The spec is immutable.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an action never changes; create another one"
// +kubebuilder:validation:XValidation:rule="!has(self.step) || self.verb in ['approve', 'promote']",message="step needs the verb approve or promote"
// +kubebuilder:validation:XValidation:rule="!has(self.full) || !self.full || self.verb == 'promote'",message="full needs the verb promote"
// +kubebuilder:validation:XValidation:rule="self.verb != 'permit' || has(self.reason) && size(self.reason) > 0",message="the verb permit needs a reason"
type RolloutActionSpec struct {
	// SidecarSet is the name of the SidecarSet of the rollout.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	SidecarSet string `json:"sidecarSet"`
	// Verb is the effect of the action. The verbs pause and resume pause and resume the rollout. The verb
	// approve approves the current step of the RolloutPolicy, and promote ends the current step. The verb abort
	// rolls the rollout back, and retry restarts a rollout that was rolled back. The verb permit starts a
	// rollout that waits for a permit of the fleet.
	Verb RolloutVerb `json:"verb"`
	// Step is the number of a step, from 1, or the name of a step. If another step is current, the action is
	// rejected. Without a step, the action applies to the current step.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : size(self) > 0",message="step is a number from 1, or the name of a step"
	Step *intstr.IntOrString `json:"step,omitempty"`
	// Generation is a generation of the SidecarSet. If the SidecarSet has another generation, the action is
	// rejected. Without a generation, the action applies to the current generation.
	// +kubebuilder:validation:Minimum=1
	Generation int64 `json:"generation,omitempty"`
	// Full makes the verb promote end all steps instead of the current step.
	Full bool `json:"full,omitempty"`
	// Reason is shown in status, conditions and the run. The verb permit needs a reason.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 1024",message="the reason may have 1024 bytes"
	Reason string `json:"reason,omitempty"`
	// RequestedBy is the user that created the action. The webhook writes the authenticated user, and
	// replaces any other value.
	// +kubebuilder:validation:MaxLength=1024
	RequestedBy string `json:"requestedBy,omitempty"`
}

// RolloutActionPhase is the phase of an action.
//
// +kubebuilder:validation:Enum=Pending;Succeeded;Rejected
type RolloutActionPhase string

// These are the phases of actions. Succeeded and Rejected are final.
const (
	ActionPending   RolloutActionPhase = "Pending"
	ActionSucceeded RolloutActionPhase = "Succeeded"
	ActionRejected  RolloutActionPhase = "Rejected"
)

// RolloutActionStatus is the answer to an action.
type RolloutActionStatus struct {
	// Phase is Pending until the run has answered. Succeeded and Rejected are final.
	Phase RolloutActionPhase `json:"phase,omitempty"`
	// Message is the answer of the run, or the reason why the run has not responded yet.
	Message string `json:"message,omitempty"`
	// Time is the time of the last change of the phase.
	Time *metav1.Time `json:"time,omitempty"`
	// ObservedGeneration is the generation of the action that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Target is the generation and the step to which the action applies. The operator writes the target before
	// it sends the action to the run, so that a retry applies to the same step.
	Target *RolloutActionTarget `json:"target,omitempty"`
}

// RolloutActionTarget is a generation of a SidecarSet, and a step of its rollout.
type RolloutActionTarget struct {
	// UID is the uid of the SidecarSet.
	UID types.UID `json:"uid"`
	// Generation is the generation of the SidecarSet.
	Generation int64 `json:"generation"`
	// Step is the number of the step, from 1. If the verb is not approve or promote, Step is 0.
	Step int32 `json:"step,omitempty"`
}
