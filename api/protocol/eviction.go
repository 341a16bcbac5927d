package protocol

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
)

// These are the names of the workflow that evicts pods, of its activities, its signal and its memo.
const (
	EvictionWorkflow      = "Eviction"
	PlanEvictionsActivity = "PlanEvictions"
	EvictPodsActivity     = "EvictPods"
	WakeSignal            = "wake"
	EvictionMemo          = "evictions"
)

// EvictionWorkflowID returns the workflow id of the evictions of a RolloutPolicy.
func EvictionWorkflowID(name string, uid types.UID) string {
	return fmt.Sprintf("eviction/%s/%s", name, uid)
}

// PolicyReference identifies a RolloutPolicy by name and uid.
type PolicyReference struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// EvictionInput is the input of the workflow Eviction.
type EvictionInput struct {
	Policy PolicyReference `json:"policy"`
	State  EvictionState   `json:"state,omitzero"`
	// View is the last view of the previous run, which continued as new with this input.
	View EvictionView `json:"view,omitzero"`
}

// EvictionState is the state of the evictions of a policy. Pods that wait for their eviction are not part of
// the state.
type EvictionState struct {
	// PolicyGeneration is the generation of the policy to which Failed and Proven apply.
	PolicyGeneration int64 `json:"policyGeneration,omitempty"`
	// InFlight contains the evictions whose replacements are not ready yet.
	InFlight []Eviction `json:"inFlight,omitempty"`
	// Proven contains the content for which an eviction has succeeded (SPEC §13.3.1).
	Proven []ProvenContent `json:"proven,omitempty"`
	// Failed contains the owners with a failed eviction (SPEC §13.3.2).
	Failed []outriggerv1.FailedEviction `json:"failed,omitempty"`
	// Evicted counts the evicted pods.
	Evicted int `json:"evicted,omitempty"`
	// Since is the time of the first plan with pods that may be evicted, now or later. Since is zero while no
	// such pods exist.
	Since time.Time `json:"since,omitzero"`
	// A rotation is one pass over all owners in which the API server rejects every eviction. Rejected counts
	// the rejected owners in the current rotation. Rotations counts the complete rotations since the last
	// accepted eviction.
	Rejected  int `json:"rejected,omitempty"`
	Rotations int `json:"rotations,omitempty"`
	// Due is the time at which the run makes its next plan.
	Due time.Time `json:"due,omitzero"`
	// Last is the owner that was chosen last. The next plan begins with the owner that follows Last.
	Last string `json:"last,omitempty"`
	// RejectedReady and RejectedUnready contain pods whose evictions were rejected while the pods were ready or
	// unready, the oldest rejection first. A plan keeps only the last rejected pod of each owner, and first tries
	// the pods of the owner with later names.
	RejectedReady   Fingerprints `json:"rejectedReady,omitempty"`
	RejectedUnready Fingerprints `json:"rejectedUnready,omitempty"`
}

// ProvenContent is content of a SidecarSet for which an eviction has succeeded.
type ProvenContent struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Generation int64        `json:"generation"`
	// Hash is the hash of the content, or empty if an older worker recorded the success.
	Hash string `json:"hash,omitempty"`
}

// Owner is the workload of pods: the controller of the pods, or the Deployment that controls their ReplicaSet.
type Owner struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
}

func (o Owner) String() string { return o.Kind + " " + o.Namespace + "/" + o.Name }

// Controller is the controller that owns a pod, as in the metadata of the pod.
type Controller struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// Eviction is the eviction of pods of one owner.
type Eviction struct {
	SidecarSet SetReference `json:"sidecarSet"`
	Generation int64        `json:"generation"`
	// Hash is the hash of the content for which the pods are evicted.
	Hash  string `json:"hash,omitempty"`
	Owner Owner  `json:"owner"`
	// Controller is the controller of the pods. For the pods of a Deployment, Controller is the ReplicaSet,
	// and Owner is the Deployment.
	Controller Controller `json:"controller,omitzero"`
	// Pods are the pods to evict, each with the resourceVersion that the plan read.
	Pods []WrittenPod `json:"pods"`
	// Unready is set if the pods were not ready when the plan chose the pods.
	Unready bool `json:"unready,omitempty"`
	// The following fields describe the owner when the plan chose the pods. Good is the number of pods with the
	// newest content. Good includes unready pods only if Unready is set. Others is the number of other pods
	// that have to be recreated for the SidecarSet. Newest is the creation time of the newest pod, by the clock
	// of the API server. Since is the start of the plan, by the clock of Temporal. In EvictionState, Since is
	// the time at which the run began to wait for the replacements.
	Good   int       `json:"good,omitempty"`
	Others int       `json:"others,omitempty"`
	Newest time.Time `json:"newest"`
	Since  time.Time `json:"since"`
	// Terminating is the last time at which a plan observed that an evicted pod terminates.
	Terminating time.Time `json:"terminating,omitzero"`
	// Failed is set while a failed eviction has no ready replacement.
	Failed bool `json:"failed,omitempty"`
}

// PlanEvictionsInput is the input of the activity PlanEvictions. Now is workflow.Now at the call.
type PlanEvictionsInput struct {
	Policy PolicyReference `json:"policy"`
	State  EvictionState   `json:"state,omitzero"`
	Now    time.Time       `json:"now"`
}

// EvictionPlan contains the next evictions.
type EvictionPlan struct {
	// Ended is set if the policy is gone, or does not evict pods.
	Ended bool          `json:"ended,omitempty"`
	State EvictionState `json:"state,omitzero"`
	Evict []Eviction    `json:"evict,omitempty"`
	// Remaining counts the pods that still have to be recreated.
	Remaining int `json:"remaining,omitempty"`
	// Left names the SidecarSets that have outdated pods, but no outdated pod that may be evicted.
	Left []string `json:"left,omitempty"`
	// Owners counts the owners with pods that may be evicted in this rotation.
	Owners  int           `json:"owners,omitempty"`
	Overdue bool          `json:"overdue,omitempty"`
	Message string        `json:"message,omitempty"`
	Wait    time.Duration `json:"wait,omitempty"`
}

// EvictPodsInput contains the evictions that the activity EvictPods writes.
type EvictPodsInput struct {
	Policy     PolicyReference `json:"policy"`
	Generation int64           `json:"generation"`
	Evictions  []Eviction      `json:"evictions"`
}

// EvictPodsResult contains the results for the pods. Evicted pods are terminating or gone. Rejected contains
// the pods whose eviction the API server rejected, with the reasons. Pods in neither list were not evicted.
type EvictPodsResult struct {
	Evicted  []types.UID   `json:"evicted,omitempty"`
	Rejected []RejectedPod `json:"rejected,omitempty"`
}

// EvictionView is the memo EvictionMemo, and the answer to the query status.
type EvictionView struct {
	Message   string    `json:"message,omitempty"`
	Remaining int       `json:"remaining"`
	Evicted   int       `json:"evicted"`
	Since     time.Time `json:"since,omitzero"`
	Overdue   bool      `json:"overdue,omitempty"`
	Pause     *Pause    `json:"pause,omitempty"`
	// PauseChanged is the time of the last pause or resume, or the start of the first run, by the clock of
	// Temporal. PauseChanged is zero if an older worker wrote the view.
	PauseChanged time.Time                    `json:"pauseChanged,omitzero"`
	Failed       []outriggerv1.FailedEviction `json:"failed,omitempty"`
	// Left names the SidecarSets that have outdated pods, but no outdated pod that may be evicted.
	Left []string `json:"left,omitempty"`
}

// HasLost reports whether the run has lost the pause known, which is later than the last change of the run. A run
// loses a pause if Temporal is restored to a time before the pause (SPEC §13.5.4).
func (v *EvictionView) HasLost(known *Pause) bool {
	return known != nil && v.Pause == nil && !v.PauseChanged.IsZero() && v.PauseChanged.Before(known.At)
}
