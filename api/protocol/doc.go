// Package protocol holds the names and payloads of the Rollout workflow, and is
// all that the operator and the worker share of it. A change here changes recorded
// histories: add fields, never rename or reuse them on the wire.
package protocol
