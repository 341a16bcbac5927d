// Package demo shows one rollout on the local stack. The demo fails if the rollout breaks a rule.
package demo
