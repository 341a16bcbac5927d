// Package operator is the role that watches SidecarSets and their pods. For each SidecarSet
// it registers revisions, starts and signals its rollout in Temporal, and writes status,
// conditions, events and metrics (SPEC §6, §8). It patches no pod, and no write waits for
// Temporal longer than a second.
//
// reconcile.go lists the steps of a reconcile: revisions.go, population.go, uninjected.go,
// run.go and status.go. The steps share a pass (pass.go). watches.go requeues SidecarSets
// for the changes that concern them.
package operator
