// Package cli is kubectl sidecarset. It reads the cluster and the runs in Temporal, has
// cli/view make a model of that, and prints it. It writes in two places only: undo writes
// a SidecarSet, pause and resume update its run.
package cli
