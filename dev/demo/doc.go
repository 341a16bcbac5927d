// Package demo shows one rollout on the local stack, and fails when the rollout breaks a rule.
package demo
