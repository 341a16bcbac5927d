package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SidecarSetStatus is the state that the operator observed.
type SidecarSetStatus struct {
	// ObservedGeneration is the newest generation of the SidecarSet that the operator has observed.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// MatchedPods is the number of matched pods. A matched pod has all containers of the SidecarSet.
	MatchedPods int32 `json:"matchedPods"`
	// UpdatedPods is the number of matched pods with the newest version.
	UpdatedPods int32 `json:"updatedPods"`
	// ReadyPods is the number of matched pods that are ready.
	ReadyPods int32 `json:"readyPods"`
	// UpdatedReadyPods is the number of matched pods that are updated and ready.
	UpdatedReadyPods int32 `json:"updatedReadyPods,omitempty"`
	// LatestRevision is the name of the current ControllerRevision.
	LatestRevision string `json:"latestRevision,omitempty"`
	// CollisionCount makes the names of revisions unique.
	CollisionCount *int32 `json:"collisionCount,omitempty"`
	// Rollout is the run of the newest generation that Temporal accepted.
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// GoodRevisions are the revisions whose rollout has ended, newest first. A pod with a good revision that
	// becomes unavailable later takes no slot of maxUnavailable.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	GoodRevisions []GoodRevision `json:"goodRevisions,omitempty"`
	// ResizableHashes are the hashes without images of contents that differ from the current content only in
	// images and amounts of CPU and memory.
	// +listType=atomic
	ResizableHashes []string `json:"resizableHashes,omitempty"`
	// Conditions are Progressing, Available, Degraded, Injected, Ready and Stalled.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaxGoodRevisions limits the length of status.goodRevisions.
const MaxGoodRevisions = 10

// GoodRevision is a revision whose rollout ended with RolloutComplete or
// PartitionReached.
type GoodRevision struct {
	// Revision is the name of the ControllerRevision.
	Revision string `json:"revision"`
	// Hash is the hash of the content, including the images. The annotation kruise.io/sidecarset-hash of an
	// updated pod contains the same hash.
	Hash string `json:"hash"`
	// ResourceVersion is the resourceVersion of the SidecarSet when the end of the rollout was recorded. The
	// entry applies only to pods that were upgraded before. If ResourceVersion is empty, the entry applies
	// only to pods that Outrigger has not upgraded.
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// ProgressingReason returns the reason of the condition Progressing of the current generation. Before the
// operator has observed the generation, the result is empty.
func (s *SidecarSet) ProgressingReason() string {
	progressing := meta.FindStatusCondition(s.Status.Conditions, ConditionProgressing)
	if progressing == nil || progressing.ObservedGeneration != s.Generation {
		return ""
	}
	return progressing.Reason
}

// IsLastGood reports whether hash is the hash of the last good revision.
func (s *SidecarSetStatus) IsLastGood(hash string) bool {
	last := s.LastGoodRevision()
	return last != nil && last.Hash == hash
}

// LastGoodRevision returns the newest good revision that has a resourceVersion, or nil.
func (s *SidecarSetStatus) LastGoodRevision() *GoodRevision {
	for i := range s.GoodRevisions {
		if s.GoodRevisions[i].ResourceVersion != "" {
			return &s.GoodRevisions[i]
		}
	}
	return nil
}

// RolloutStatus refers to the run of a generation.
type RolloutStatus struct {
	// Generation is the last generation that Temporal accepted.
	Generation int64 `json:"generation"`
	// WorkflowID is the workflow id of the run, which is the same for all generations.
	WorkflowID string `json:"workflowID"`
	// URL is the address of the run in the Temporal UI, if a UI is configured.
	URL string `json:"url,omitempty"`
	// Pause is the pause by signal or update in effect. If the run is lost, the new run begins with
	// this pause.
	Pause *RolloutPause `json:"hold,omitempty"`
	// Policy is the RolloutPolicy that divides the rollout into steps, if any.
	Policy string `json:"policy,omitempty"`
	// Stage is the position within the steps of the policy. If the run is lost, the new run continues at this
	// position.
	Stage *RolloutStage `json:"stage,omitempty"`
	// Quarantine is set after the rollout has failed or was aborted. The quarantine applies to the content in
	// every later generation.
	Quarantine *RolloutQuarantine `json:"quarantine,omitempty"`
	// Permit is the permit of the fleet for the run, in the form attempt/stage/hash, such as 1/canary/4b7f.
	Permit string `json:"permit,omitempty"`
}

// RolloutQuarantine is content that is not rolled out again before a retry, because the rollout failed or was
// aborted.
type RolloutQuarantine struct {
	// Hash is the hash of the quarantined content, including the images.
	Hash string `json:"hash"`
	// Revision is the name of the ControllerRevision to which pods are rolled back. New pods also get this
	// revision.
	Revision string `json:"revision"`
	// Reason is the reason for the rollback.
	Reason string `json:"reason,omitempty"`
	// Since is the time at which the rollback began.
	Since metav1.Time `json:"since"`
}

// RolloutStage is the position of a rollout within the steps of a RolloutPolicy.
type RolloutStage struct {
	// Step is the number of the current step, from 1.
	// +kubebuilder:validation:Minimum=1
	Step int32 `json:"step"`
	// Steps is the number of steps of the policy.
	Steps int32 `json:"steps"`
	// Name is the name of the current step.
	Name string `json:"name,omitempty"`
	// UpTo is the number or the percentage of pods that are updated after the step.
	// +kubebuilder:validation:XIntOrString
	UpTo *intstr.IntOrString `json:"upTo,omitempty"`
	// Bake is the bake time of the step.
	Bake *metav1.Duration `json:"bake,omitempty"`
	// Approval is set if the step waits for an approval after the bake time and the gates.
	Approval bool `json:"approval,omitempty"`
	// MaxFailedPods is the number or the percentage of failed pods above which the rollout has failed.
	// +kubebuilder:validation:XIntOrString
	MaxFailedPods *intstr.IntOrString `json:"maxFailedPods,omitempty"`
	// Rollback is set if a failure rolls the rollout back. Otherwise, a failure pauses the rollout.
	Rollback bool `json:"rollback,omitempty"`
	// UnreadyFor is the time after which an upgraded pod that is not ready counts as failed.
	UnreadyFor *metav1.Duration `json:"unreadyFor,omitempty"`
	// AppRestarts is the number of restarts of app containers after which an upgraded pod counts as
	// failed.
	AppRestarts int32 `json:"appRestarts,omitempty"`
	// ProgressDeadline is the time within which another pod must become updated and ready. After this time,
	// the rollout has failed.
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`
	// MaxUnavailablePerOwner is the maximum number of pods of one owner that upgrades make unavailable at once.
	// 0 means no limit.
	MaxUnavailablePerOwner int32 `json:"maxUnavailablePerOwner,omitempty"`
	// Domains limits the number of domains in which upgrades of the step make pods unavailable at once.
	Domains *StepDomains `json:"domains,omitempty"`
	// RespectPodDisruptionBudgets reports whether upgrades of the step respect PodDisruptionBudgets.
	RespectPodDisruptionBudgets bool `json:"respectPodDisruptionBudgets,omitempty"`
	// Windows are the times at which upgrades of the step may start.
	// +listType=atomic
	Windows []StepWindow `json:"windows,omitempty"`
	// ToleratedPods is the number of failed pods that a resume accepted.
	ToleratedPods int32 `json:"toleratedPods,omitempty"`
	// AcceptFailedPods is set after a resume until the run has counted the failed pods.
	AcceptFailedPods bool `json:"acceptFailedPods,omitempty"`
	// ReachedAt is the time at which all pods of the step were updated and ready.
	ReachedAt *metav1.MicroTime `json:"reachedAt,omitempty"`
	// ApprovedBy is the approval of the step.
	ApprovedBy *StepApproval `json:"approvedBy,omitempty"`
	// Gates are the gates of the step, with their measurements.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Gates []StageGate `json:"gates,omitempty"`
	// GateAttempt counts the resumes that restarted the gates of the step.
	GateAttempt int32 `json:"gateAttempt,omitempty"`
	// Done is set once neither a step nor a limit of the policy applies to the rollout.
	Done bool `json:"done,omitempty"`
}

// StageGate is a gate of a step.
type StageGate struct {
	// Name is the name of the gate.
	Name string `json:"name"`
	// Definition is the gate of the policy when the step began, as JSON.
	Definition string `json:"definition"`
	// Phase is Pending, Running, Success, Failure or Inconclusive.
	Phase string `json:"phase"`
	// Message is the reason for the phase.
	Message string `json:"message,omitempty"`
	// Samples is the number of samples.
	Samples int32 `json:"samples,omitempty"`
	// FailedSamples is the number of samples that failed.
	FailedSamples int32 `json:"failedSamples,omitempty"`
	// InconclusiveSamples is the number of samples without a clear answer.
	InconclusiveSamples int32 `json:"inconclusiveSamples,omitempty"`
	// Measurements are the last five measurements.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	Measurements []GateMeasurement `json:"measurements,omitempty"`
}

// GateMeasurement is one measurement of a gate.
type GateMeasurement struct {
	// Value is the measured number, such as 0.013. If the measurement has no number, Value is empty.
	Value string `json:"value,omitempty"`
	// Phase is Success, Failure, Inconclusive or Running.
	Phase string `json:"phase"`
	// Message is the reason for the phase.
	Message string `json:"message,omitempty"`
	// Time is the time of the measurement.
	Time metav1.MicroTime `json:"time"`
}

// StepDomains limits the number of domains in which upgrades make pods unavailable at once.
type StepDomains struct {
	// TopologyKey is a label of nodes. Each value of the label is a domain.
	TopologyKey string `json:"topologyKey"`
	// MaxUnavailableDomains is the maximum number of these domains.
	MaxUnavailableDomains int32 `json:"maxUnavailableDomains"`
}

// StepWindow is a recurring period in which upgrades may start.
type StepWindow struct {
	// Schedule is the cron expression of the start.
	Schedule string `json:"schedule"`
	// Duration is the length of the window.
	Duration metav1.Duration `json:"duration"`
	// TimeZone is the time zone of the schedule.
	TimeZone string `json:"timeZone,omitempty"`
}

// StepApproval is an approval of a step.
type StepApproval struct {
	// By is the user that approved the step.
	By string `json:"by,omitempty"`
	// Reason is the reason for the approval.
	Reason string `json:"reason,omitempty"`
}

// RolloutPause is a pause by signal or update.
type RolloutPause struct {
	// By is the user that paused the run.
	By string `json:"who,omitempty"`
	// Reason is the reason for the pause.
	Reason string `json:"why,omitempty"`
}
