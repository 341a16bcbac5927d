// Package temporal connects to Temporal: flags, TEMPORAL_* variables and profiles, TLS files
// that may be replaced at any time, stable texts for the causes of failures, and the setup
// and cleanup of a namespace.
package temporal
