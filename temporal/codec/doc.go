// Package codec encrypts the payloads of runs, and serves decryption for the Temporal UI and CLI.
package codec
