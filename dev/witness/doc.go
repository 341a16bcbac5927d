// Package witness watches pods from outside, shares no code with the roles, and records the
// largest number of pods that were unavailable at once.
package witness
