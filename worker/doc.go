// Package worker is the role that hosts the Rollout workflow and its activities. Each process runs
// two Temporal workers. One runs workflow tasks and the activities that select pods. The other runs
// the activities that write pods. In a member of a fleet, it also runs the workers of the fleet.
package worker
