// Package runs is the operator's side of Temporal: the runs of rollouts. Client starts,
// signals and describes runs, and probes Temporal. Diagnose finds the fault of a run that
// does not go on. Calls keeps a slow Temporal from blocking reconciles. Orphans ends the
// runs of deleted SidecarSets.
package runs
