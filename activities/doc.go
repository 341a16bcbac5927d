// Package activities contains the activities of a rollout: selecting the next
// pods, upgrading them, resetting the standby twins of hot pods, and writing the
// pods' condition. Each activity is idempotent: a retry, on any worker, starts
// from the cluster as it is.
package activities
