// Package witness watches pods from outside, shares no code with what upgrades
// them, and records the largest number that was unavailable at once.
package witness
