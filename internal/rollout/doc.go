// Package rollout plans: which pods of a set are upgraded next, in which
// order, within which bounds (SPEC §7). It is pure: the same population gives
// the same plan.
package rollout
