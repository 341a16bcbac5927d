// Package switchover tests the switchover from OpenKruise and back, with pods as recorded from
// OpenKruise, on a real API server and Temporal.
package switchover
