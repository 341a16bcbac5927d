package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// Buffers contains the body and the answer of a request.
type Buffers struct {
	Body, Answer bytes.Buffer
}

// maxPooledBuffer is the maximum capacity of a buffer that is reused. Typical requests fit into this capacity.
// The buffer of a larger request is freed.
const maxPooledBuffer = 64 << 10

// read reads body into b. If body exceeds limit or cannot be read, read returns an error and its HTTP
// status. If length is negative, the length of body is not known.
func (b *Buffers) read(body io.Reader, length int64, limit Size) (status int, err error) {
	if length > 0 {
		b.Body.Grow(int(min(length, smallBody)) + bytes.MinRead)
	}
	_, err = b.Body.ReadFrom(io.LimitReader(body, limit.Bytes+1))
	switch {
	case timedOut(err):
		return http.StatusRequestTimeout, fmt.Errorf("read the body: %w", err)
	case err != nil:
		return http.StatusBadRequest, fmt.Errorf("read the body: %w", err)
	case int64(b.Body.Len()) > limit.Bytes:
		return http.StatusRequestEntityTooLarge, limit.tooLarge()
	case count(b.Body.Bytes()) > limit.Values:
		return http.StatusRequestEntityTooLarge, fmt.Errorf("the request body has too many JSON values: the limit is %d", limit.Values)
	}
	return http.StatusOK, nil
}
