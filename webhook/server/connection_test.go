package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wholeRequest returns a valid request.
func wholeRequest() string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", reviewPath, len(reviewBody), reviewBody)
}

// Some clients send the whole body before they read the response.
func TestTheAnswerReachesAClientThatIsStillSending(t *testing.T) {
	for _, header := range []string{"Connection: close", "X: y"} {
		s := newServed(t, nil)
		c := s.dial(t)
		_, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\nContent-Length: %d\r\n\r\n", reviewPath, header, 10<<20)
		require.NoError(t, err)
		_, err = io.CopyN(c, letters{}, 10<<20)
		require.NoError(t, err)
		response, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		assert.Equal(t, http.StatusRequestEntityTooLarge, response.StatusCode)
		assert.Contains(t, string(text), "the request body is too large")
		assert.True(t, response.Close)
	}
}

// The bytes after a rejected header are the body of the request, even if these bytes look like another
// request.
func TestABodyIsNeverReadAsARequest(t *testing.T) {
	inner := wholeRequest()
	length := fmt.Sprintf("Content-Length: %d\r\n", len(inner))
	chunked := "Transfer-Encoding: chunked\r\n"
	for name, c := range map[string]struct {
		head, body string
		want       int
	}{
		"another type":      {"POST " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n" + length, inner, 415},
		"another method":    {"PUT " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\n" + length, inner, 405},
		"another path":      {"POST / HTTP/1.1\r\nHost: localhost\r\n" + length, inner, 404},
		"bad chunks":        {"POST " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + chunked, "zz\r\n" + inner, 400},
		"two lengths":       {"POST " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 0\r\n" + length, inner, 400},
		"length and chunks": {"POST " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + length + chunked, "0\r\n\r\n" + inner, 400},
		"a negative length": {"POST " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: -1\r\n", inner, 400},
		"a folded header":   {"POST " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\nX: y\r\n Content-Length: 3\r\n" + length, inner, 415},
		"a space in a name": {"POST " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Length : 3\r\n" + length, inner, 400},
		"no host":           {"POST " + reviewPath + " HTTP/1.1\r\nContent-Type: application/json\r\n" + length, inner, 400},
		"get with a body":   {"GET " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\n" + length, inner, 405},
		"an unknown coding": {"POST " + reviewPath + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: gzip\r\n" + length, inner, 501},
		"nothing like HTTP": {"\x16\x03\x01\r\n", inner, 400},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServed(t, nil)
			connection := s.dial(t)
			_, err := io.WriteString(connection, c.head+"\r\n"+c.body)
			require.NoError(t, err)
			require.NoError(t, connection.CloseWrite())
			everything, err := io.ReadAll(connection)
			require.NoError(t, err)
			assert.Equal(t, 1, strings.Count(string(everything), "HTTP/1.1 "), string(everything))
			response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(everything))), nil)
			require.NoError(t, err)
			assert.Equal(t, c.want, response.StatusCode, string(everything))
		})
	}
}

func TestRequestsInARowAreAllAnswered(t *testing.T) {
	s := newServed(t, nil)
	connection := s.dial(t)
	_, err := io.WriteString(connection, strings.Repeat(wholeRequest(), 3))
	require.NoError(t, err)
	reader := bufio.NewReader(connection)
	for range 3 {
		response, err := http.ReadResponse(reader, nil)
		require.NoError(t, err)
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		assert.Contains(t, string(text), answered)
	}
}

// A request in progress is answered before the process ends.
func TestARequestInProgressIsAnsweredDuringShutdown(t *testing.T) {
	began, goOn := make(chan struct{}), make(chan struct{})
	s := newServed(t, func(s *Server) {
		s.Register("/slow", reviewSize(), func(ctx context.Context, buffers *Buffers) (int, error) {
			close(began)
			<-goOn
			buffers.Answer.WriteString("done")
			return http.StatusOK, ctx.Err()
		})
	})
	connection := s.dial(t)
	_, err := io.WriteString(connection, "POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
	require.NoError(t, err)
	<-began
	s.stop()
	_, err = net.Dial("tcp", s.address)
	for err == nil {
		_, err = net.Dial("tcp", s.address)
	}
	close(goOn)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	require.NoError(t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, "done", string(text))
	assert.True(t, response.Close)
}

func TestAServerWithACanceledContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	assert.NoError(t, new(Server).Runnable(listener).Start(ctx))
}
