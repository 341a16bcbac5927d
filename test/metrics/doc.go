// Package metrics compares docs/metrics.md with the metrics that the roles register, and the
// queries of config/monitoring with docs/metrics.md.
package metrics
