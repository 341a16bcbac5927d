// Package demo shows one rollout on the local stack, and checks
// every word of it.
package demo
