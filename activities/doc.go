// Package activities holds what a Rollout does in the cluster: choosing the
// next pods and upgrading them. Each is idempotent: a retry, on any worker,
// starts from the cluster as it is.
package activities
