// Package temporal connects to Temporal. It reads flags, TEMPORAL_* variables and profiles. TLS
// files may be replaced at any time. The package explains failures in stable texts. It also sets
// up and cleans up a namespace.
package temporal
