// Package activities contains the activities of a rollout. They select the next pods, upgrade pods,
// reset the standby twins of hot pods, write the condition of pods, and measure gates. Each
// activity is idempotent. A retry, on any worker, starts from the current state of the cluster.
package activities
