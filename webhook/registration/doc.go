// Package registration issues the serving certificate of the webhook. The Reconciler writes the CA of the
// certificate into the webhook configurations and into the conversion of the CustomResourceDefinition. The
// Reconciler also writes the rules of the pod webhook, and a match condition that is derived from the
// SidecarSets.
package registration
