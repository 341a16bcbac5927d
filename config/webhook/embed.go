// Package webhook embeds the webhook configurations for the program and for development clusters.
package webhook

import _ "embed"

// Manifests are the configurations, as YAML documents.
//
//go:embed manifests.yaml
var Manifests []byte
