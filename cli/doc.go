// Package cli is kubectl sidecarset. A command reads the cluster and the runs in Temporal, and
// prints a model of cli/view. Some commands write: set image and undo patch a SidecarSet, restart
// evicts pods, freeze and unfreeze write RolloutFreezes, and pause, resume, approve, promote,
// abort, retry and permit update a run, or create a RolloutAction. Without an open run, pause
// patches the SidecarSet, and resume ends this pause.
package cli
