// Package rbac embeds the namespace in which the webhook role validates pods by dry run.
package rbac

import _ "embed"

// Validation is the namespace and its quota, as YAML documents.
//
//go:embed validation.yaml
var Validation []byte
