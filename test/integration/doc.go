// Package integration tries the three processes together on real parts: an API
// server, simulated nodes, a Temporal server.
package integration
