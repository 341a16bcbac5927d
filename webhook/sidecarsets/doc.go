// Package sidecarsets implements the admission of SidecarSets. The package writes defaults, validates
// SidecarSets, creates a pod with the containers of a SidecarSet in a dry run, and converts SidecarSets
// between API versions (SPEC §5).
package sidecarsets
