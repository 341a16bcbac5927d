// Package crd reads and patches the CustomResourceDefinition of SidecarSets. It keeps
// SidecarSets readable while no webhook converts them, and uninstalls the roles.
package crd
