// Package temporal connects to Temporal: where it is and who one is there (flags,
// TEMPORAL_* variables, profiles), TLS whose files may be replaced at any time, the causes
// of failures in stable words, and the preparation and cleaning of a namespace.
package temporal
