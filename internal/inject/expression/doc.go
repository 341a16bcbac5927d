// Package expression computes resources of sidecars from those of app
// containers, exactly: `max(cpu*50%, 50m)` (SPEC §4.7).
package expression
