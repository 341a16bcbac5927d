// Package conversion translates SidecarSets between the versions of their API.
// It works on decoded JSON, so that fields which this program does not know
// survive. The versions differ in two places:
//
//	v1alpha1                                                    v1beta1
//	spec.namespace                                              spec.namespaceSelector
//	label apps.kruise.io/sidecarset-custom-version              spec.customVersion
package conversion
