// Package registration makes the API server call the webhooks: it writes their CA,
// URL and rules, the conversion of SidecarSets, and the certificate that is served
// (SPEC §4.14).
package registration
