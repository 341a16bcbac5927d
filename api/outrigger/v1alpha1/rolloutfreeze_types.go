package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RolloutFreeze stops the upgrades of the selected SidecarSets. Hot upgrades in progress finish. The rollouts
// continue once the freeze is deleted, or at the time spec.until. A freeze does not change the version of new
// pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=rof
// +kubebuilder:printcolumn:name="UNTIL",type="string",JSONPath=".spec.until",description="Time at which the freeze ends. Empty: once the freeze is deleted."
// +kubebuilder:printcolumn:name="REASON",type="string",JSONPath=".spec.reason",description="Reason of the freeze."
// +kubebuilder:printcolumn:name="AGE",type="date",JSONPath=".metadata.creationTimestamp"
type RolloutFreeze struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RolloutFreezeSpec `json:"spec,omitzero"`
}

// RolloutFreezeList is a list of RolloutFreezes.
//
// +kubebuilder:object:root=true
type RolloutFreezeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RolloutFreeze `json:"items"`
}

// RolloutFreezeSpec selects the SidecarSets of a freeze, and limits the duration of the freeze.
type RolloutFreezeSpec struct {
	// Selector selects SidecarSets by their labels. Without a selector, or with an empty selector,
	// the freeze applies to every SidecarSet.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="selector: the operators In and NotIn need values; Exists and DoesNotExist have none"
	Selector metav1.LabelSelector `json:"selector,omitzero"`
	// Reason is the reason for the freeze. Status and commands show the reason.
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// Until is the time at which the freeze ends, such as 2026-11-28T00:00:00Z. Without until, the freeze
	// ends once the freeze is deleted.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$') && timestamp(self) > timestamp('0001-01-01T00:00:00Z')",message="until is a time in RFC 3339, such as 2026-12-24T18:00:00Z"
	Until *metav1.Time `json:"until,omitempty"`
	// AllowRollback lets rollbacks upgrade pods during the freeze. The default is true.
	// +kubebuilder:default=true
	AllowRollback *bool `json:"allowRollback,omitempty"`
}
