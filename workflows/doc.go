// Package workflows contains the workflow of a rollout. A run stores the generation, the pause
// and the progress. Activities make all decisions that depend on the cluster, so that planning
// can change without breaking the replay of recorded runs.
package workflows
