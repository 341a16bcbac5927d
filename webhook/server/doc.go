// Package server is the HTTPS server that API servers call: who is answered, how
// long a client may take, and how much may be in flight (SPEC §4.15).
package server
