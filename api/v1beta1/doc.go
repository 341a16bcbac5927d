// Package v1beta1 holds the SidecarSet API, group apps.kruise.io, as it is to
// become. It says in two places better what v1alpha1 says, and shares the rest
// with it; package internal/conversion translates.
//
// +kubebuilder:object:generate=true
// +groupName=apps.kruise.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion identifies this API.
var GroupVersion = schema.GroupVersion{Group: "apps.kruise.io", Version: "v1beta1"}

// V1alpha1ScopeAnnotation is on objects of this version only, and only when the
// namespaceSelector cannot tell how v1alpha1 wrote it: it holds the namespace and
// namespaceSelector of v1alpha1 as JSON. The conversion alone writes it.
const V1alpha1ScopeAnnotation = "outrigger.io/v1alpha1-scope"

// AddToScheme registers the SidecarSet types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &SidecarSet{}, &SidecarSetList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
