// Package webhook is the process that admits pods and SidecarSets: it wires the
// server, the admission of each kind, and their registration together.
package webhook
