// Package revision knows what a version of a SidecarSet is: its hashes, its
// recorded content, and when two of them are the same (SPEC §2, §6).
package revision
