// Package kube connects the roles to the API server. It contains options, scheme, transport and
// the controller-runtime manager.
package kube
