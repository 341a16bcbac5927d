// Package worker implements the role worker, which hosts the workflows Rollout and Eviction and their
// activities. Each process runs a Temporal worker for workflow tasks and for the activities that do not write
// pods. A second Temporal worker runs the activities that write pods. With a cluster-wide limit, only the
// leader runs the second worker. In a member of a fleet, the process also runs the workers of the fleet.
package worker
