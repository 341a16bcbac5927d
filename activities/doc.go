// Package activities contains the activities of rollouts and of evictions. The activities select the next
// pods, upgrade pods, reset the standby twins of hot pods, write the condition of pods, measure gates, and
// evict pods. Each activity is idempotent. A retry, on any worker, starts from the current state of the
// cluster.
package activities
