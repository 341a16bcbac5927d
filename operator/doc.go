// Package operator implements the role that watches SidecarSets and their pods. For each SidecarSet, the
// operator registers revisions, starts and signals the rollout in Temporal, and writes status, conditions,
// events and metrics (SPEC §6, §8). The operator does not write pods. A write of status waits at most one
// second for Temporal.
//
// reconcile.go lists the steps of a reconcile. The steps are in revisions.go, population.go,
// uninjected.go, run.go and status.go, and share a pass (pass.go). watches.go requeues a
// SidecarSet after each change that can affect its status or its rollout.
package operator
