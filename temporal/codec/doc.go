// Package codec encrypts the payloads of runs before they leave for Temporal, and serves
// what the Temporal UI and CLI ask to show them.
package codec
