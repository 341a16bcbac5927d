package server

import "testing"

// Served is the fixture of this package's tests, for package server_test.
type Served = served

// Holds reports whether a body is within the limits.
func (s Size) Holds(body []byte) bool {
	return int64(len(body)) <= s.Bytes && count(body) <= s.Values
}

// NewServed returns a started server. change adds routes before the start.
func NewServed(t *testing.T, change func(*Server)) *Served { return newServed(t, change) }
