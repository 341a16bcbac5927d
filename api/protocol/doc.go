// Package protocol defines the names and payloads of the workflows of rollouts and of fleets. The operator
// and the command line exchange only these names and payloads with the workflows. Recorded histories contain
// the names and payloads. Therefore, add fields, but do not rename a JSON field, and do not use the JSON name
// of a removed field again.
package protocol
