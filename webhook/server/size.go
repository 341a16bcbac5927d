package server

import (
	"bytes"
	"fmt"
)

// Size limits the body of a request, and estimates the memory for decoding the body.
type Size struct {
	// Bytes and Values are the limits of the body. Values limits the result of count.
	Bytes, Values int64
	// PerByte and PerValue estimate the memory for decoding, in bytes.
	PerByte, PerValue int64
}

// Weight returns an estimate of the memory for decoding body, in bytes.
func (s Size) Weight(body []byte) int64 {
	return s.PerByte*int64(len(body)) + s.PerValue*count(body)
}

func (s Size) tooLarge() error {
	return fmt.Errorf("the request body is too large: the limit is %d bytes", s.Bytes)
}

// count returns the number of commas in body, as an estimate of the number of JSON values. The actual number
// can be higher, because nested objects and arrays with one element each contain no comma.
func count(body []byte) int64 { return int64(bytes.Count(body, []byte{','})) }
