// Package webhook runs the webhook process. The process consists of the server, the admission of pods, of
// SidecarSets, of RolloutPolicies and of RolloutActions, and the registration of the webhooks.
package webhook
