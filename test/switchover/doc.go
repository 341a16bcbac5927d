// Package switchover tests the switchover from OpenKruise and back, with pods that were recorded from
// OpenKruise, on a real API server and Temporal.
package switchover
