// Package webhook carries the webhook configurations, for those who install them
// with an URL in place of the Service.
package webhook

import _ "embed"

// Manifests are the configurations, as YAML documents.
//
//go:embed manifests.yaml
var Manifests []byte
