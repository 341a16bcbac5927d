// Package v1alpha1 defines the API of group outrigger.io, which controls how rollouts of SidecarSets proceed.
// The package contains types, and no logic (SPEC §11). Without objects of this group, SidecarSets roll out as
// in OpenKruise.
//
// +kubebuilder:object:generate=true
// +groupName=outrigger.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion identifies this API.
var GroupVersion = schema.GroupVersion{Group: "outrigger.io", Version: "v1alpha1"}

// AddToScheme registers the types of the group.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &RolloutPolicy{}, &RolloutPolicyList{}, &RolloutFreeze{}, &RolloutFreezeList{},
		&RolloutAction{}, &RolloutActionList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
