// Package registration issues the serving certificate of the webhook, and writes its CA
// and its rules into the webhook configurations and into the conversion of the
// CustomResourceDefinition.
package registration
