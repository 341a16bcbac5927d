// Package switchover takes a cluster over from OpenKruise and gives it back: pods as
// OpenKruise recorded them, on a real API server and Temporal.
package switchover
