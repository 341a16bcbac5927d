package server

import (
	"bytes"
	"fmt"
)

// Size limits the body of a request, and estimates the memory for it.
type Size struct {
	// Bytes and Values limit the body.
	Bytes, Values int64
	// PerByte and PerValue estimate the memory for decoding, in bytes.
	PerByte, PerValue int64
}

// Weight estimates the memory for decoding a body, in bytes.
func (s Size) Weight(body []byte) int64 {
	return s.PerByte*int64(len(body)) + s.PerValue*count(body)
}

func (s Size) tooLarge() error {
	return fmt.Errorf("the request body is too large: the limit is %d bytes", s.Bytes)
}

// count returns an upper bound of the number of values, because a comma separates any two values.
func count(body []byte) int64 { return int64(bytes.Count(body, []byte{','})) }
