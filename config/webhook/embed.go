// Package webhook embeds the webhook configurations, for installations with a URL instead of
// the Service.
package webhook

import _ "embed"

// Manifests are the configurations, as YAML documents.
//
//go:embed manifests.yaml
var Manifests []byte
