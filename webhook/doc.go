// Package webhook is the webhook process. It connects the server, the admission of pods
// and of SidecarSets, and their registration.
package webhook
