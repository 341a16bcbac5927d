// Package server is the HTTPS server for API servers. The server authenticates clients, and limits
// connections, timeouts, sizes and requests in flight (SPEC §4.15).
package server
