// Package runs is the operator's side of Temporal: the runs of rollouts. Client starts,
// signals and describes runs, and probes Temporal. Diagnose finds the fault of a run that
// makes no progress. Orphans ends the runs of deleted SidecarSets.
package runs
