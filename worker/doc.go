// Package worker is the role that hosts the Rollout workflow and its activities. Each
// process runs two Temporal workers: one for workflow tasks and the activities that select
// pods, one for the activities that write them.
package worker
