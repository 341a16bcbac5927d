// Package protocol defines the names and payloads of the workflows of rollouts and of fleets. The
// operator and the worker share nothing else of the workflow of a rollout. Recorded histories
// contain these names and payloads. Therefore, add fields, but never rename a field or reuse its
// name on the wire.
package protocol
