// Package cli is kubectl sidecarset. A command reads the cluster and the runs in Temporal,
// and prints a model of cli/view. Two commands write: undo patches a SidecarSet, and pause
// and resume update its run.
package cli
