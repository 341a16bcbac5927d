// Package webhook runs the webhook process. It connects the server, the admission of pods, the
// admission of SidecarSets, and the registration of the webhooks.
package webhook
