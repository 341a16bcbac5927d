// Package cli tests kubectl sidecarset against a real API server and a real Temporal.
package cli
