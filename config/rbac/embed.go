// Package rbac carries the namespace in which the webhook role asks the API
// server about pods.
package rbac

import _ "embed"

// Validation is the namespace and its quota, as YAML documents.
//
//go:embed validation.yaml
var Validation []byte
