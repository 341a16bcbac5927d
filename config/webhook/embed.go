// Package webhook carries the webhook configurations that the webhook role
// keeps in step.
package webhook

import _ "embed"

// Manifests are the configurations, as YAML documents.
//
//go:embed manifests.yaml
var Manifests []byte
