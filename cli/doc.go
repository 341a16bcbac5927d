// Package cli implements kubectl sidecarset. A command reads the cluster and the runs in Temporal, and prints
// a model of cli/view. Some commands write: set image and undo patch a SidecarSet, restart evicts pods,
// freeze creates a RolloutFreeze, and unfreeze deletes RolloutFreezes. pause, resume, approve, promote, abort
// and retry update a run, or create a RolloutAction. permit creates a RolloutAction. Without an open run,
// pause patches the SidecarSet. If the SidecarSet is paused by its spec, resume patches the SidecarSet.
package cli
