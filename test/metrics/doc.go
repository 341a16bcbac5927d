// Package metrics holds docs/metrics.md to what the roles register, and what
// config/monitoring asks to what is in there.
package metrics
