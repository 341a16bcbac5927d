// Package integration tests the three roles together with a real API server, simulated nodes and a Temporal
// server.
package integration
