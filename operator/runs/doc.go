// Package runs manages the runs of rollouts in Temporal for the operator. Client starts, signals
// and describes runs, and probes Temporal. Diagnose finds the fault of a run that makes no
// progress. Orphans ends the runs of deleted SidecarSets.
package runs
