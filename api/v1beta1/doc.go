// Package v1beta1 defines the next version of the SidecarSet API in group apps.kruise.io. Only
// customVersion and namespaceSelector differ from v1alpha1. All other types are the types of
// v1alpha1. Package internal/conversion converts between the versions.
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

// V1alpha1ScopeAnnotation contains the namespace and namespaceSelector of v1alpha1 as JSON. The
// conversion writes the annotation into v1beta1 objects whose namespaceSelector does not
// determine both fields.
const V1alpha1ScopeAnnotation = "outrigger.io/v1alpha1-scope"

// AddToScheme registers the SidecarSet types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &SidecarSet{}, &SidecarSetList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
