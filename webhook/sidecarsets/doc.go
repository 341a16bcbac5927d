// Package sidecarsets implements the admission of SidecarSets. It writes defaults, validates
// SidecarSets, creates a pod with their containers in a dry run, and converts SidecarSets between
// API versions (SPEC §5).
package sidecarsets
