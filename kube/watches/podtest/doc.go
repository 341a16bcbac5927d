// Package podtest creates random pods with a value in every field, for tests of the cache of pods.
package podtest
