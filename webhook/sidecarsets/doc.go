// Package sidecarsets is the admission of SidecarSets. It writes defaults, validates,
// creates a pod with their containers in a dry run, and converts between API versions
// (SPEC §5).
package sidecarsets
