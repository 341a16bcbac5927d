// Package switchover says what would differ if Outrigger took a cluster over from
// OpenKruise: sets and pods as they are stored, and who answers for them now.
package switchover
