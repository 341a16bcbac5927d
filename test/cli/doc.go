// Package cli tests kubectl sidecarset, outrigger simulate and outrigger ui against a real API
// server and a real Temporal.
package cli
