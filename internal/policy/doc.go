// Package policy evaluates decisions that are written as ordered lists of named
// checks: the first check that holds decides, so that the list documents the
// decision.
package policy
