// Package operator is the role that watches SidecarSets and their pods. For each set it
// registers revisions, starts and signals its rollout in Temporal, and writes status,
// conditions, events and metrics (SPEC §6, §8). It patches no pod, and no write waits for
// Temporal longer than a second.
//
// A reconcile runs from reconcile.go to observation.go (what is there), reconcile_run.go
// (the run in Temporal), conditions.go and events.go (what people see). The rest works
// beside it: availability.go probes Temporal, orphans.go ends the runs of deleted sets,
// and storage_version.go migrates stored sets.
package operator
