// Package kube connects the roles to the API server. The package contains the options, the scheme, the
// transport and the controller-runtime manager of the roles.
package kube
