// Package podtest draws pods with a value in every field, for tests of what the cache of
// pods keeps.
package podtest
