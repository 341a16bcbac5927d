package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// FleetPolicy divides the rollouts of SidecarSets over many clusters into stages. It is a manifest of
// the command outrigger fleet apply, and no object of an API server.
type FleetPolicy struct {
	metav1.TypeMeta `json:",inline"`

	Metadata FleetPolicyMetadata `json:"metadata"`
	Spec     FleetPolicySpec     `json:"spec"`
}

// FleetPolicyMetadata names a FleetPolicy.
type FleetPolicyMetadata struct {
	Name string `json:"name"`
}

// FleetPolicySpec is the wanted order of a rollout over many clusters.
type FleetPolicySpec struct {
	SidecarSets FleetSidecarSets `json:"sidecarSets"`
	// Stages are the stages of each rollout, in order. A cluster belongs to the first stage that
	// selects it. Clusters that no stage selects come after the last stage.
	Stages []FleetStage `json:"stages"`
	// Failure is the reaction to a cluster whose rollout failed.
	Failure FleetFailure `json:"failure,omitzero"`
	// Unreachable says when a cluster is skipped.
	Unreachable FleetUnreachable `json:"unreachable,omitzero"`
	// Gates are measurements that decide between two stages whether the rollout continues. A gate of a
	// fleet has no credentials.
	Gates []RolloutGate `json:"gates,omitempty"`
}

// FleetSidecarSets selects SidecarSets by their names, such as envoy or logs-*.
type FleetSidecarSets struct {
	MatchNames []string `json:"matchNames"`
}

// FleetStage is one stage of a rollout. The next stage begins once the runs of its clusters have
// completed, its bake time is over, its gates have succeeded, and it is approved.
type FleetStage struct {
	Name string `json:"name"`
	// Clusters selects clusters by their labels. Without labels, it selects all clusters.
	Clusters FleetClusters `json:"clusters,omitzero"`
	// MaxConcurrentClusters is the number or the percentage of the clusters of the stage that roll out
	// at the same time. Without it, all clusters do.
	MaxConcurrentClusters *intstr.IntOrString `json:"maxConcurrentClusters,omitempty"`
	// Bake is the time that the stage waits after the last of its runs has completed.
	Bake *metav1.Duration `json:"bake,omitempty"`
	// Gates are the names of the gates of the stage. They measure after its bake time and before its
	// approval, in this order.
	Gates []string `json:"gates,omitempty"`
	// Approval makes the stage wait for an approval after its bake time and its gates.
	Approval *StepApproval `json:"approval,omitempty"`
}

// FleetClusters selects clusters by their labels.
type FleetClusters struct {
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// FleetFailure is the reaction to a cluster whose rollout failed.
type FleetFailure struct {
	// Action is Pause, RollbackStage or RollbackAll. The default is Pause.
	Action FleetAction `json:"action,omitempty"`
	// MaxFailedClusters is the number of clusters that may fail before the rollout stops. The default is 0.
	MaxFailedClusters int `json:"maxFailedClusters,omitempty"`
}

// FleetAction is the reaction to a cluster whose rollout failed.
type FleetAction string

// These are the reactions to a cluster whose rollout failed.
const (
	FleetPause         FleetAction = "Pause"
	FleetRollbackStage FleetAction = "RollbackStage"
	FleetRollbackAll   FleetAction = "RollbackAll"
)

// FleetUnreachable says when a cluster is skipped.
type FleetUnreachable struct {
	// After is the time after which a cluster is skipped whose worker does not answer, or which does
	// not have the content. The default is 10m.
	After *metav1.Duration `json:"after,omitempty"`
	// Max is the number or the percentage of the clusters of a stage that may be skipped. If more are
	// skipped, the stage waits. Without it, any number may be skipped.
	Max *intstr.IntOrString `json:"max,omitempty"`
}
