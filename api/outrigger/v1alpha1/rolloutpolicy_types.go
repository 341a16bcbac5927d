package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// RolloutPolicy divides the rollouts of the selected SidecarSets into steps. At most one policy applies to a
// SidecarSet. If several policies select a SidecarSet, the policy with the lowest matchingPrecedence applies.
// If precedences are equal, the policy whose name sorts first applies.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=rop
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="PRECEDENCE",type="integer",JSONPath=".spec.matchingPrecedence",description="The policy with the lowest precedence applies."
// +kubebuilder:printcolumn:name="STEPS",type="string",JSONPath=".spec.steps[*].upTo",description="Pods up to which each step upgrades."
// +kubebuilder:printcolumn:name="SIDECARSETS",type="integer",JSONPath=".status.sidecarSets",description="Number of SidecarSets that the policy applies to."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="EVICTIONS",type="string",JSONPath=".status.evictions.message",priority=1,description="Pods that have to be recreated, and why they wait."
type RolloutPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RolloutPolicySpec   `json:"spec"`
	Status RolloutPolicyStatus `json:"status,omitzero"`
}

// RolloutPolicyList is a list of RolloutPolicies.
//
// +kubebuilder:object:root=true
type RolloutPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RolloutPolicy `json:"items"`
}

// RolloutPolicySpec is the desired behavior of rollouts.
//
// +kubebuilder:validation:XValidation:rule="!has(self.steps) || self.steps.all(s, !has(s.gates) || s.gates.all(name, has(self.gates) && self.gates.exists(gate, gate.name == name)))",message="a step names a gate that is not in spec.gates: add the gate, or remove its name from the step",messageExpression="'gate ' + self.steps.filter(s, has(s.gates) && s.gates.exists(name, !has(self.gates) || !self.gates.exists(gate, gate.name == name)))[0].gates.filter(name, !has(self.gates) || !self.gates.exists(gate, gate.name == name))[0] + ' of a step is not in spec.gates: add the gate, or remove its name from the step'"
type RolloutPolicySpec struct {
	// Selector selects SidecarSets by their labels. An empty selector selects every SidecarSet.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="selector: the operators In and NotIn need values; Exists and DoesNotExist have none"
	Selector metav1.LabelSelector `json:"selector"`
	// MatchingPrecedence orders the policies that select the same SidecarSet. The policy with the lowest
	// value applies.
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MatchingPrecedence int32 `json:"matchingPrecedence,omitempty"`
	// Steps are the steps of each rollout, in order. After the last step, the rollout upgrades all remaining
	// pods. Without steps, the rollout upgrades all pods, within maxUnavailable.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:XValidation:rule="self.all(a, !has(a.name) || self.exists_one(b, has(b.name) && b.name == a.name))",message="the names of steps must differ"
	// +kubebuilder:validation:XValidation:rule="[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48].all(i, i + 1 >= size(self) || (type(self[i].upTo) == int ? type(self[i + 1].upTo) != int || self[i].upTo <= self[i + 1].upTo : type(self[i + 1].upTo) == int || !self[i].upTo.matches('^[0-9]{1,3}%$') || !self[i + 1].upTo.matches('^[0-9]{1,3}%$') || int(self[i].upTo.replace('%', '')) <= int(self[i + 1].upTo.replace('%', ''))))",message="upTo includes the pods of earlier steps, so it must not be less than upTo of the step before",messageExpression="'upTo of step ' + ['2', '3', '4', '5', '6', '7', '8', '9', '10', '11', '12', '13', '14', '15', '16', '17', '18', '19', '20', '21', '22', '23', '24', '25', '26', '27', '28', '29', '30', '31', '32', '33', '34', '35', '36', '37', '38', '39', '40', '41', '42', '43', '44', '45', '46', '47', '48', '49', '50'][[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48].filter(i, i + 1 < size(self) && (type(self[i].upTo) == int && type(self[i + 1].upTo) == int && self[i].upTo > self[i + 1].upTo || type(self[i].upTo) == string && type(self[i + 1].upTo) == string && int(self[i].upTo.replace('%', '')) > int(self[i + 1].upTo.replace('%', ''))))[0]] + ' must not be less than upTo of the step before, because it includes the pods of earlier steps'"
	Steps []RolloutStep `json:"steps,omitempty"`
	// MaxUnavailablePerOwner is the maximum number of pods of one owner that upgrades make unavailable at once,
	// such as 1. An owner is the controller of a pod: a ReplicaSet, StatefulSet, DaemonSet or Job. Pods without
	// a controller are not limited.
	// +kubebuilder:validation:Minimum=1
	MaxUnavailablePerOwner int32 `json:"maxUnavailablePerOwner,omitempty"`
	// Domains limits the number of domains, such as zones, in which upgrades make pods unavailable at once.
	Domains *RolloutDomains `json:"domains,omitempty"`
	// RespectPodDisruptionBudgets makes upgrades respect PodDisruptionBudgets: an upgrade makes a
	// healthy pod unavailable only if each PodDisruptionBudget that selects the pod allows a disruption.
	RespectPodDisruptionBudgets bool `json:"respectPodDisruptionBudgets,omitempty"`
	// Windows are the times at which upgrades may start. Outside the windows, no upgrade starts, and
	// hot upgrades in progress finish. Without windows, upgrades may start at any time.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Windows []RolloutWindow `json:"windows,omitempty"`
	// Failure pauses or rolls back a rollout whose upgraded pods fail.
	Failure *RolloutFailure `json:"failure,omitempty"`
	// Gates are measurements that decide between two steps whether the rollout continues.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Gates []RolloutGate `json:"gates,omitempty"`
	// NotUpgradable configures the reaction to pods that cannot be upgraded in place.
	NotUpgradable *RolloutNotUpgradable `json:"notUpgradable,omitempty"`
}

// RolloutDomains limits the number of domains in which upgrades make pods unavailable at once. The upgrades of
// a domain end before the upgrades of the next domain begin. Pods on nodes without the label are not limited.
type RolloutDomains struct {
	// TopologyKey is a label of nodes, such as topology.kubernetes.io/zone. Each value of the label is
	// a domain.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')",message="topologyKey is a label of nodes such as topology.kubernetes.io/zone"
	TopologyKey string `json:"topologyKey"`
	// MaxUnavailableDomains is the maximum number of domains in which upgrades make pods unavailable at once.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	MaxUnavailableDomains int32 `json:"maxUnavailableDomains,omitempty"`
}

// RolloutWindow is a recurring period in which upgrades may start.
type RolloutWindow struct {
	// Schedule is the start of the window as a cron expression of five fields: minute, hour, day of the
	// month, month, day of the week. For example, "0 9 * * 1-5" is 9:00 from Monday to Friday. If the change
	// to daylight-saving time skips the start time, no window begins.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('(?i)^ *([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]*)?(,([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]*)?)* +([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]*)?(,([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]*)?)* +([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]*)?(,([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]*)?)* +([*?]|(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?)(/[1-9][0-9]*)?(,([*?]|(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?)(/[1-9][0-9]*)?)* +([*?]|([0-6]|sun|mon|tue|wed|thu|fri|sat)(-([0-6]|sun|mon|tue|wed|thu|fri|sat))?)(/[1-9][0-9]*)?(,([*?]|([0-6]|sun|mon|tue|wed|thu|fri|sat)(-([0-6]|sun|mon|tue|wed|thu|fri|sat))?)(/[1-9][0-9]*)?)* *$')",message="schedule is a cron expression of five fields such as \"0 9 * * 1-5\": minute, hour, day of the month, month, day of the week from 0 (Sunday) to 6"
	Schedule string `json:"schedule"`
	// Duration is the length of the window, such as 8h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]*[.]?[0-9]*(ns|us|µs|ms|s|m|h))+$') && duration(self) > duration('0s')",message="duration is a positive duration in hours, minutes and seconds, such as 8h"
	Duration metav1.Duration `json:"duration"`
	// TimeZone is the name of the time zone of the schedule, such as Europe/Berlin. The default is
	// UTC.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == '' || (self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$') && self != 'Local')",message="timeZone is a name of the time zone database, such as Europe/Berlin"
	TimeZone string `json:"timeZone,omitempty"`
}

// RolloutFailure configures when a rollout fails. An upgraded pod fails if a sidecar of the pod cannot start,
// or has restarted twice since the upgrade. Pods that are not upgraded yet are the control group. If a share of
// the control group also fails, the same share of the upgraded pods does not count.
type RolloutFailure struct {
	// MaxFailedPods is the number of failed pods above which the rollout has failed. A percentage refers to
	// the pods that the rollout upgrades, and is rounded down. With 0, the first failed pod fails the
	// rollout.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^([0-9]|[1-9][0-9]|100)%$')",message="maxFailedPods is a number of pods, or a percentage such as 5%"
	MaxFailedPods intstr.IntOrString `json:"maxFailedPods"`
	// Action is the reaction to failed pods. Pause pauses the rollout. Rollback upgrades the pods with the
	// failed version in place to the newest good revision. New pods also get this revision. Without a good
	// revision, Rollback pauses the rollout. The default is Pause.
	// +kubebuilder:validation:Enum=Pause;Rollback
	Action FailureAction `json:"action,omitempty"`
	// UnreadyFor is the time after which an upgraded pod that is not ready counts as failed, such as 5m. A
	// pod that was unavailable before the upgrade does not count. Without unreadyFor, a pod that is not ready
	// does not count.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]*[.]?[0-9]*(ns|us|µs|ms|s|m|h))+$') && duration(self) > duration('0s')",message="unreadyFor is a positive duration such as 5m"
	UnreadyFor *metav1.Duration `json:"unreadyFor,omitempty"`
	// AppRestarts is the number of restarts of app containers after which an upgraded pod counts as failed,
	// such as 1. All containers except sidecars are app containers. Without appRestarts, these restarts do
	// not count.
	// +kubebuilder:validation:Minimum=1
	AppRestarts int32 `json:"appRestarts,omitempty"`
	// ProgressDeadline is the time within which another pod must become updated and ready, such as 30m.
	// Otherwise, the rollout fails. The time runs while the rollout can upgrade pods, or waits for upgraded
	// pods. The time starts again with each pod that becomes updated and ready. Without progressDeadline, a
	// rollout has no time limit.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]*[.]?[0-9]*(ns|us|µs|ms|s|m|h))+$') && duration(self) > duration('0s')",message="progressDeadline is a positive duration such as 30m"
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`
}

// FailureAction is the reaction to failed pods.
type FailureAction string

// These are the reactions to failed pods.
const (
	PauseOnFailure    FailureAction = "Pause"
	RollbackOnFailure FailureAction = "Rollback"
)

// RolloutStep is one step of a rollout. The next step begins once all pods of the step are updated and ready,
// the bake time of the step has ended, the gates of the step have succeeded, and a required approval is given.
type RolloutStep struct {
	// Name is the name of the step in messages and commands.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name consists of lower-case letters, digits and hyphens, and begins and ends with a letter or a digit, such as canary"
	Name string `json:"name,omitempty"`
	// UpTo is the number of pods that are updated at the end of the step, including the pods of
	// earlier steps. A percentage refers to the pods that the rollout upgrades, and is rounded
	// up.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9]|[1-9][0-9]|100)%$')",message="upTo is a number of pods of at least 1, or a percentage from 1% to 100%"
	UpTo intstr.IntOrString `json:"upTo"`
	// Bake is the time that the step waits after all pods of the step are updated and ready. No pod is upgraded
	// during this time.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:XValidation:rule="self.matches('^[+]?([0-9]*[.]?[0-9]*(ns|us|µs|ms|s|m|h))+$') && duration(self) > duration('0s')",message="bake is a positive duration such as 10m; without a bake time, leave it out"
	// +kubebuilder:validation:MaxLength=32
	Bake *metav1.Duration `json:"bake,omitempty"`
	// Approval makes the step wait for an approval after the bake time and the gates of the step.
	Approval *StepApproval `json:"approval,omitempty"`
	// Gates are the names of the gates of the step. The gates run one after the other, in the order of this
	// list, after the bake time of the step and before the approval of the step.
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=63
	Gates []string `json:"gates,omitempty"`
}

// StepApproval makes a step of a rollout wait for kubectl sidecarset approve, or a stage of a fleet wait for
// outrigger fleet approve.
type StepApproval struct{}

// RolloutPolicyStatus is the observed state of a RolloutPolicy.
type RolloutPolicyStatus struct {
	// ObservedGeneration is the generation that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// SidecarSets is the number of SidecarSets to which the policy applies.
	SidecarSets int32 `json:"sidecarSets"`
	// Names are the sorted names of these SidecarSets. The list has at most 100 names.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Names []string `json:"names,omitempty"`
	// Evictions is the state of the evictions. Evictions is nil unless the policy evicts pods.
	Evictions *EvictionStatus `json:"evictions,omitempty"`
}
