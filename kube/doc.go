// Package kube connects the roles to the API server: options, scheme, transport and the
// controller-runtime manager.
package kube
