// Package workflows contains the workflows of rollouts, of evictions and of a fleet. A run of a rollout
// stores the generation, the pause and the progress. Activities make all decisions that depend on the
// cluster, so that planning can change without breaking the replay of recorded runs.
package workflows
