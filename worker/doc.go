// Package worker is the role that hosts the workflows Rollout and Eviction and their activities. Each process
// runs two Temporal workers. The first worker runs workflow tasks and the activities that do not write pods.
// The second worker runs the activities that write pods. In a member of a fleet, the process also runs the
// workers of the fleet.
package worker
