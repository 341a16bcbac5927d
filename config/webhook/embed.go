// Package webhook embeds the webhook configurations. Installations use them to replace the
// Service by a URL.
package webhook

import _ "embed"

// Manifests are the configurations, as YAML documents.
//
//go:embed manifests.yaml
var Manifests []byte
