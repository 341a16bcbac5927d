package server

import (
	"bytes"
	"fmt"
)

// Size is what a request may hold at most, and what it costs.
type Size struct {
	// Bytes and Values are the most that a body may have.
	Bytes, Values int64
	// PerByte and PerValue estimate the bytes of memory that decoding takes.
	PerByte, PerValue int64
}

// Weight estimates the bytes of memory that decoding a body takes.
func (s Size) Weight(body []byte) int64 {
	return s.PerByte*int64(len(body)) + s.PerValue*count(body)
}

// Holds reports whether a body is within the size.
func (s Size) Holds(body []byte) bool {
	return int64(len(body)) <= s.Bytes && count(body) <= s.Values
}

func (s Size) tooLarge() error { return fmt.Errorf("send at most %d bytes", s.Bytes) }

// count is no less than the number of values: commas are between any two.
func count(body []byte) int64 { return int64(bytes.Count(body, []byte{','})) }
