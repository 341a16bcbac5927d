// Package workflows holds the durable run of a rollout. It keeps what must
// survive: the generation, the pause, the progress. Everything that depends on
// the cluster is decided inside activities, so that planning can change
// without breaking the replay of recorded runs.
package workflows
