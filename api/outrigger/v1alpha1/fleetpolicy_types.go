package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// FleetPolicy divides the rollouts of SidecarSets across many clusters into stages. A FleetPolicy is a manifest
// for the command outrigger fleet apply, and not an object of an API server.
type FleetPolicy struct {
	metav1.TypeMeta `json:",inline"`

	Metadata FleetPolicyMetadata `json:"metadata"`
	Spec     FleetPolicySpec     `json:"spec"`
}

// FleetPolicyMetadata names a FleetPolicy.
type FleetPolicyMetadata struct {
	Name string `json:"name"`
}

// FleetPolicySpec defines the order in which the clusters of a fleet roll out.
type FleetPolicySpec struct {
	SidecarSets FleetSidecarSets `json:"sidecarSets"`
	// Stages are the stages of each rollout, in order. A cluster belongs to the first stage that selects the
	// cluster. Clusters that no stage selects roll out after the last stage.
	Stages []FleetStage `json:"stages"`
	// Failure is the reaction to a cluster whose rollout failed.
	Failure FleetFailure `json:"failure,omitzero"`
	// Unreachable configures when a cluster is skipped.
	Unreachable FleetUnreachable `json:"unreachable,omitzero"`
	// Gates are measurements that decide between two stages whether the rollout continues. A gate of a fleet
	// must not have credentials.
	Gates []RolloutGate `json:"gates,omitempty"`
}

// FleetSidecarSets selects SidecarSets by their names, such as envoy or logs-*.
type FleetSidecarSets struct {
	MatchNames []string `json:"matchNames"`
}

// FleetStage is one stage of a rollout. The next stage begins once the rollouts in the clusters of the stage
// are completed, the bake time of the stage has ended, the gates of the stage have succeeded, and a required
// approval is given.
type FleetStage struct {
	Name string `json:"name"`
	// Clusters selects clusters by their labels. Without labels, the stage selects all clusters.
	Clusters FleetClusters `json:"clusters,omitzero"`
	// MaxConcurrentClusters is the maximum number or percentage of the clusters of the stage that roll out at
	// the same time. Without maxConcurrentClusters, all clusters of the stage roll out at the same time.
	MaxConcurrentClusters *intstr.IntOrString `json:"maxConcurrentClusters,omitempty"`
	// Bake is the time that the stage waits after the rollouts in all clusters of the stage are completed.
	Bake *metav1.Duration `json:"bake,omitempty"`
	// Gates are the names of the gates of the stage. The gates run one after the other, in the order of this
	// list, after the bake time and before the approval of the stage.
	Gates []string `json:"gates,omitempty"`
	// Approval makes the stage wait for an approval after the bake time and the gates of the stage.
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

// FleetUnreachable configures when a cluster is skipped.
type FleetUnreachable struct {
	// After is the time after which a cluster is skipped if the worker of the cluster does not respond, or if
	// the cluster does not have the content. The default is 10m.
	After *metav1.Duration `json:"after,omitempty"`
	// Max is the maximum number or percentage of the clusters of a stage that may be skipped. If more clusters
	// are skipped, the stage waits. Without max, any number of clusters may be skipped.
	Max *intstr.IntOrString `json:"max,omitempty"`
}
