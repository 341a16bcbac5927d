// Package integration tests the three processes together with a real API server, simulated nodes
// and a Temporal server.
package integration
