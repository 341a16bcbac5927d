// Package sidecarsets is the admission of SidecarSets: it completes and refuses them,
// tries their containers in a dry run, and converts them between API versions
// (SPEC §5).
package sidecarsets
