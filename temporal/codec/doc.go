// Package codec encrypts the payloads of runs, and serves an endpoint that decrypts payloads for the Temporal
// UI and CLI.
package codec
