// Package protocol defines the names and payloads of the Rollout workflow. The operator and the
// worker share nothing else of this workflow. Recorded histories contain these names and
// payloads. Therefore, add fields, but never rename a field or reuse its name on the wire.
package protocol
