// Package registration issues the serving certificate of the webhook. It writes the CA of the
// certificate into the webhook configurations and into the conversion of the
// CustomResourceDefinition. It writes the rules of the pod webhook into the webhook
// configurations, and a match condition that follows the SidecarSets.
package registration
