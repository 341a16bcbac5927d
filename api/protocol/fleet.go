package protocol

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
)

// These names are registered with the Temporal of the fleet. Only PermitUpdate and PermitMemo belong to the
// runs of a single cluster.
const (
	// FleetWorkflow is the workflow of the rollouts of one SidecarSet across many clusters.
	// FleetRegistryWorkflow keeps the policies and the members of a fleet.
	FleetWorkflow         = "Fleet"
	FleetRegistryWorkflow = "FleetRegistry"
	FleetRegistryID       = "fleet-policies"
	FleetTaskQueue        = "outrigger-fleet"
	// ContentSignal reports the content of a SidecarSet in a member. AnnounceSignal reports a member.
	ContentSignal  = "content"
	AnnounceSignal = "announce"
	// ClusterQuery returns the FleetCluster with a uid, or nil.
	ClusterQuery = "cluster"
	// MembersSignal makes a rollout read the members of the fleet again.
	MembersSignal = "members"
	// These are the updates of the registry.
	ApplyPolicyUpdate  = "apply"
	RemoveMemberUpdate = "remove"
	FreezeUpdate       = "freeze"
	UnfreezeUpdate     = "unfreeze"
	// These are the activities of a fleet. The workers of any member execute FleetPlan and FleetGate. Only the
	// workers of the affected member execute the other activities.
	FleetPlanActivity     = "FleetPlan"
	FleetRolloutActivity  = "FleetRollout"
	FleetRollbackActivity = "FleetRollback"
	FleetFreezeActivity   = "FleetFreeze"
	FleetGateActivity     = "FleetGate"
	// PermitUpdate gives a run its Permit. PermitMemo is the memo with the permit of a run.
	PermitUpdate = "permit"
	PermitMemo   = "permit"
)

const fleetPrefix = "fleet/"

// FleetWorkflowID returns the workflow id of the rollout of a SidecarSet across many clusters.
func FleetWorkflowID(set string) string { return fleetPrefix + set }

// FleetSet returns the name of the SidecarSet in a workflow id that FleetWorkflowID built.
func FleetSet(id string) string { return strings.TrimPrefix(id, fleetPrefix) }

// FleetMemberTaskQueue returns the task queue of the activities of a member. uid is the uid of the namespace
// kube-system in the cluster of the member.
func FleetMemberTaskQueue(uid string) string { return FleetTaskQueue + "/" + uid }

// Permit allows a run of a member of a fleet to roll out content.
type Permit struct {
	// Hash is the hash of the content.
	Hash string `json:"hash"`
	// Stage is the name of the stage of the FleetPolicy.
	Stage string `json:"stage,omitempty"`
	// Attempt increases with each retry of the content. Attempt is 0 in a permit of a user.
	Attempt int `json:"attempt,omitempty"`
	// By and Reason belong to a permit of a user. The run rejects the update with the permit after NotAfter.
	By       string    `json:"by,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	NotAfter time.Time `json:"notAfter,omitzero"`
}

// String returns the form of a permit in status, such as 1/canary/4b7f.
func (p Permit) String() string { return fmt.Sprintf("%d/%s/%s", p.Attempt, p.Stage, p.Hash) }

// ParsePermit parses the permit that status records. ParsePermit returns nil for text in another form, because
// users can edit status.
func ParsePermit(recorded string) *Permit {
	parts := strings.SplitN(recorded, "/", 3)
	if len(parts) != 3 {
		return nil
	}
	attempt, err := strconv.Atoi(parts[0])
	if err != nil {
		return nil
	}
	return &Permit{Attempt: attempt, Stage: parts[1], Hash: parts[2]}
}

// FleetMember is a cluster of a fleet.
type FleetMember struct {
	UID    string            `json:"uid"`
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
}

// FleetContent is the payload of ContentSignal.
type FleetContent struct {
	Member string `json:"member"`
	Hash   string `json:"hash"`
	// Settled is set if the content needs no permit in the member (SPEC 12.5.4).
	Settled bool `json:"settled,omitempty"`
	// Good is set if the last rollout that ended in the member is the rollout of the content.
	Good bool `json:"good,omitempty"`
	// NotUpdate is set if the SidecarSet upgrades no pods. The rollout of such a SidecarSet ends without a
	// permit.
	NotUpdate bool `json:"notUpdate,omitempty"`
	// Own is the approval of the user that permitted the content in this member, if the fleet has not
	// permitted the content.
	Own *Approval `json:"own,omitempty"`
}

// FleetRegistry is the state of the registry. The keys of Policies are names. The keys of Members are uids.
type FleetRegistry struct {
	Policies map[string]AppliedFleetPolicy `json:"policies,omitempty"`
	Members  map[string]FleetMember        `json:"members,omitempty"`
	// Freeze is the newest start or end of a freeze of the fleet. Heard maps the uid of a member to the
	// sequence of the newest freeze that the member has received.
	Freeze *FleetFreeze   `json:"freeze,omitempty"`
	Heard  map[string]int `json:"heard,omitempty"`
}

// FleetFreeze starts or ends a freeze of all members. By is the user that requested the start or the end.
// FleetFreeze is the payload of the updates freeze and unfreeze, and the input of the activity FleetFreeze.
type FleetFreeze struct {
	Sequence int        `json:"sequence,omitempty"`
	Frozen   bool       `json:"frozen,omitempty"`
	By       string     `json:"by,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Since    time.Time  `json:"since,omitzero"`
	Until    *time.Time `json:"until,omitempty"`
}

// AppliedFleetPolicy is the spec of a FleetPolicy, and the user that applied the FleetPolicy.
type AppliedFleetPolicy struct {
	Spec outriggerv1.FleetPolicySpec `json:"spec"`
	By   string                      `json:"by,omitempty"`
}

// ApplyFleetPolicy is the payload of ApplyPolicyUpdate.
type ApplyFleetPolicy struct {
	Policy outriggerv1.FleetPolicy `json:"policy"`
	By     string                  `json:"by,omitempty"`
}

// FleetPlan is the result of the activity FleetPlan: the policy of a SidecarSet, and the members of the
// fleet.
type FleetPlan struct {
	// Policy is empty if no policy selects the SidecarSet. All clusters then roll out at once.
	Policy  string                      `json:"policy,omitempty"`
	Spec    outriggerv1.FleetPolicySpec `json:"spec"`
	Members []FleetMember               `json:"members,omitempty"`
}

// FleetPhase is the phase of a rollout across many clusters, or the verdict about content.
type FleetPhase string

// These are the phases of a rollout across many clusters.
const (
	FleetRolling     FleetPhase = "Rolling"
	FleetPaused      FleetPhase = "Paused"
	FleetRollingBack FleetPhase = "RollingBack"
	FleetFailed      FleetPhase = "Failed"
	FleetThrough     FleetPhase = "Through"
	FleetSuperseded  FleetPhase = "Superseded"
)

// FleetState is the state of a rollout across many clusters. FleetState is the input of the next run, and the
// answer to the query StatusQuery.
type FleetState struct {
	Set string `json:"set"`
	// Hash is the hash of the content. Hash is empty until a member has reported content.
	Hash    string `json:"hash,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	// Highest is the highest attempt that failed or was rolled back in a cluster. Highest is higher than Attempt
	// if the fleet has lost its state. The attempt of a retry is higher than Attempt and Highest.
	Highest int `json:"highest,omitempty"`
	// Planned is set once Policy and Spec contain a copy of the policy at the start of the rollout of the
	// content.
	Planned bool                        `json:"planned,omitempty"`
	Policy  string                      `json:"policy,omitempty"`
	Spec    outriggerv1.FleetPolicySpec `json:"spec"`
	// Stage is the index of the current stage. Began is the time at which the stage began. Reached is the
	// time at which the bake time of the stage began.
	Stage   int        `json:"stage,omitempty"`
	Began   *time.Time `json:"began,omitempty"`
	Reached *time.Time `json:"reached,omitempty"`
	// Gates are the gates of the current stage that have started. The last element is the gate that is
	// running.
	Gates    []GateState `json:"gates,omitempty"`
	Approval *Approval   `json:"approval,omitempty"`
	Phase    FleetPhase  `json:"phase"`
	// Message describes what the rollout waits for, or why the rollout stopped.
	Message string `json:"message,omitempty"`
	// Clusters are the members by their uids.
	Clusters map[string]*FleetCluster `json:"clusters,omitempty"`
	// Verdicts are the verdicts about earlier content, the newest last.
	Verdicts []FleetVerdict `json:"verdicts,omitempty"`
	// Events are the newest events of the rollouts, the newest last.
	Events []FleetEvent `json:"events,omitempty"`
	// Rules is the version of the decision logic. A run keeps its version, so that the histories of earlier
	// releases replay. A new run uses the newest version.
	Rules int `json:"-"`
}

// FleetEvent is an event of a rollout across many clusters. By is the user that caused the event, if any. Reason
// is the reason that the user gave, the cause of a failure, or the result of a gate. Cluster is the name of a
// cluster.
type FleetEvent struct {
	Time    time.Time `json:"time"`
	Hash    string    `json:"hash,omitempty"`
	What    string    `json:"what"`
	Stage   string    `json:"stage,omitempty"`
	Cluster string    `json:"cluster,omitempty"`
	By      string    `json:"by,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// FleetVerdict is the verdict about content.
type FleetVerdict struct {
	Hash  string     `json:"hash"`
	Phase FleetPhase `json:"phase"`
}

// FleetClusterState is the state of a cluster within a rollout across many clusters.
type FleetClusterState string

// These are the states of clusters. ClusterSkipped means that the cluster did not respond, or did not get the
// content in time.
const (
	ClusterPending     FleetClusterState = "Pending"
	ClusterRunning     FleetClusterState = "Running"
	ClusterCompleted   FleetClusterState = "Completed"
	ClusterFailed      FleetClusterState = "Failed"
	ClusterSkipped     FleetClusterState = "Skipped"
	ClusterSuperseded  FleetClusterState = "Superseded"
	ClusterRollbackDue FleetClusterState = "RollbackDue"
	ClusterRollingBack FleetClusterState = "RollingBack"
	ClusterRolledBack  FleetClusterState = "RolledBack"
)

// FleetCluster is a cluster within a rollout across many clusters.
type FleetCluster struct {
	Name string `json:"name,omitempty"`
	// Hash is the hash of the content that the cluster reported last.
	Hash string `json:"hash,omitempty"`
	// Stage is the index of the stage of the cluster, or UnknownStage.
	Stage  int               `json:"stage"`
	State  FleetClusterState `json:"state,omitempty"`
	Reason string            `json:"reason,omitempty"`
	Since  time.Time         `json:"since,omitzero"`
	// Begun is set if the cluster may have a permit for the content. Begun is cleared when the rollout in the
	// cluster is rolled back or superseded, and when the fleet rolls out other content.
	Begun bool `json:"begun,omitempty"`
	// Own is the approval of the user that permitted the content in this cluster, if the fleet had not
	// permitted the content. Settled is set if the cluster needed no permit for the content.
	Own     *Approval `json:"own,omitempty"`
	Settled bool      `json:"settled,omitempty"`
	// Undo is earlier content that failed, and whose rollback in the cluster has not ended. The rollout in
	// the cluster begins after the rollback.
	Undo *FleetUndo `json:"undo,omitempty"`
}

// FleetUndo is the rollback of content that other content superseded.
type FleetUndo struct {
	Hash   string `json:"hash"`
	Reason string `json:"reason,omitempty"`
}

// UnknownStage is the stage of a cluster that no FleetPlan contains yet.
const UnknownStage = -1

// FleetRolloutInput is the input of FleetRollout and FleetRollback.
type FleetRolloutInput struct {
	Set    string `json:"set"`
	Permit Permit `json:"permit"`
	// Within is the time within which the cluster must have the content. Reason is the reason for a rollback.
	Within time.Duration `json:"within,omitempty"`
	Reason string        `json:"reason,omitempty"`
}

// FleetResult is the result of FleetRollout and FleetRollback: ClusterCompleted, ClusterFailed,
// ClusterSkipped, ClusterSuperseded or ClusterRolledBack.
type FleetResult struct {
	State  FleetClusterState `json:"state"`
	Reason string            `json:"reason,omitempty"`
	// Attempt is the attempt of the permit in the cluster, if the rollout failed or was rolled back.
	Attempt int `json:"attempt,omitempty"`
}

// FleetStepRequest is the payload of the updates approve, abort and retry of a rollout over many
// clusters. Stage is the name of the stage that is approved.
type FleetStepRequest struct {
	Approval
	Stage string `json:"stage,omitempty"`
	// Hash is the hash of the content to which the request applies. If Hash is empty, the request applies to
	// the current content.
	Hash string `json:"hash,omitempty"`
}

// FleetGateInput is the input of FleetGate, which makes one measurement of a gate of a stage.
type FleetGateInput struct {
	Set    string                  `json:"set"`
	Hash   string                  `json:"hash"`
	Policy string                  `json:"policy,omitempty"`
	Stage  string                  `json:"stage"`
	Gate   outriggerv1.RolloutGate `json:"gate"`
	// Previous is the value of the latest earlier measurement that has a value. Previous is empty if no earlier
	// measurement has a value.
	Previous string `json:"previous,omitempty"`
	// Reached is the time at which the bake time of the stage began. Reached and Attempt identify the workflow
	// of a WorkflowGate.
	Reached time.Time `json:"reached"`
	Attempt int       `json:"attempt"`
	// NotBefore is the time at which the measurement is due, as in MeasureGateInput.
	NotBefore time.Time `json:"notBefore,omitzero"`
}

// Same reports whether two measurements belong to the same gate of the same attempt of a stage.
func (i *FleetGateInput) Same(other *FleetGateInput) bool {
	return i.Hash == other.Hash && i.Attempt == other.Attempt && i.Stage == other.Stage && i.Gate.Name == other.Gate.Name && i.Reached.Equal(other.Reached)
}
