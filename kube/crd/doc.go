// Package crd reads and patches the CustomResourceDefinition of SidecarSets. The package keeps SidecarSets
// readable while the conversion webhook does not answer, and uninstalls the roles.
package crd
