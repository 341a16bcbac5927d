// Package crd reads and patches the CustomResourceDefinition of SidecarSets. The package keeps SidecarSets
// readable while the conversion webhook does not respond, and uninstalls the roles.
package crd
