// Package temporal connects to Temporal. The configuration comes from flags, TEMPORAL_* variables and profiles.
// TLS files may be replaced at any time. The package explains failed calls with texts that are the same for
// each attempt. The package also sets up and cleans up a namespace.
package temporal
