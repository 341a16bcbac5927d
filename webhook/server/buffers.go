package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Buffers hold the body and the answer of one request.
type Buffers struct {
	Body, Answer bytes.Buffer
}

// maxPooledBuffer is how much of a buffer waits for the next request: the usual ones
// fit, and a few huge ones leave nothing behind.
const maxPooledBuffer = 64 << 10

// read takes a body of at most this size; a length below zero is not known.
func (b *Buffers) read(body io.Reader, length int64, most Size) (status int, err error) {
	if length > 0 {
		b.Body.Grow(int(min(length, smallBody)) + bytes.MinRead)
	}
	_, err = b.Body.ReadFrom(io.LimitReader(body, most.Bytes+1))
	switch {
	case timedOut(err):
		return http.StatusRequestTimeout, fmt.Errorf("read the body: %w", err)
	case err != nil:
		return http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	case int64(b.Body.Len()) > most.Bytes:
		return http.StatusRequestEntityTooLarge, most.tooLarge()
	case count(b.Body.Bytes()) > most.Values:
		return http.StatusRequestEntityTooLarge, fmt.Errorf("send at most %d values", most.Values)
	}
	return http.StatusOK, nil
}
