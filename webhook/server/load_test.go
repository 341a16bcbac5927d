package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// delayed registers a path whose requests wait for goOn.
func delayed(s *Server, path string, began chan<- struct{}, goOn <-chan struct{}) {
	s.Register(path, reviewSize(), func(_ context.Context, buffers *Buffers) (int, error) {
		began <- struct{}{}
		<-goOn
		buffers.Answer.WriteString("done")
		return http.StatusOK, nil
	})
}

func TestTooManyRequestsInFlightGet429(t *testing.T) {
	small, large := `{}`, `"`+strings.Repeat("a", 2*smallBody)+`"`
	heavy := "[" + strings.Repeat("1,", 2*lightWeight/int(reviewSize().PerValue)) + "1]"
	for name, c := range map[string]struct {
		limit       func(*limits)
		body, other string
		says        string
	}{
		"requests":    {func(l *limits) { l.requests = 1 }, small, small, "the limit of 1 concurrent requests is reached;"},
		"bytes":       {func(l *limits) { l.light = 8 }, small, small, "the limit of 8 concurrent bytes is reached;"},
		"large bytes": {func(l *limits) { l.reading = 3 * smallBody }, large, large, "the limit of 196608 concurrent bytes of large requests is reached;"},
		"heavy":       {func(l *limits) { l.heavy = 3 * lightWeight }, heavy, heavy, "the limit of 3145728 concurrent bytes of large requests is reached;"},
	} {
		t.Run(name, func(t *testing.T) {
			began, goOn := make(chan struct{}, 1), make(chan struct{})
			s := newServed(t, func(s *Server) {
				limits := defaultLimits()
				limits.wait = time.Millisecond
				c.limit(&limits)
				s.load = newLoad(limits)
				delayed(s, "/delayed", began, goOn)
			})
			var first sync.WaitGroup
			first.Go(func() {
				status, _ := s.do(t, http.MethodPost, "/delayed", "application/json", strings.NewReader(c.body))
				assert.Equal(t, http.StatusOK, status)
			})
			<-began
			assert.Equal(t, 1.0, valueOf(t, s.metrics.inFlight))
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.address+"/delayed", strings.NewReader(c.other))
			require.NoError(t, err)
			request.Header.Set("Content-Type", "application/json")
			response, err := s.client.Do(request)
			require.NoError(t, err)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			assert.Equal(t, http.StatusTooManyRequests, response.StatusCode)
			assert.Equal(t, "1", response.Header.Get("Retry-After"))
			assert.Contains(t, string(text), c.says)
			close(goOn)
			first.Wait()
			status, _ := s.do(t, http.MethodPost, "/delayed", "application/json", strings.NewReader(c.other))
			assert.Equal(t, http.StatusOK, status, "the reservation is released")
		})
	}
}

// Requests for pods are light, so these requests do not wait in the queue of heavy requests.
func TestHeavyRequestsDoNotDelayPods(t *testing.T) {
	began, goOn := make(chan struct{}, 1), make(chan struct{})
	s := newServed(t, func(s *Server) {
		limits := defaultLimits()
		limits.wait, limits.heavy, limits.reading = time.Hour, 1, 1
		s.load = newLoad(limits)
		delayed(s, "/delayed", began, goOn)
	})
	large := `"` + strings.Repeat("a", lightWeight) + `"`
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			status, _ := s.do(t, http.MethodPost, "/delayed", "application/json", strings.NewReader(large))
			assert.Equal(t, http.StatusOK, status)
		})
	}
	<-began
	status, _ := s.do(t, http.MethodPost, reviewPath, "application/json", strings.NewReader(reviewBody))
	assert.Equal(t, http.StatusOK, status)
	close(goOn)
	<-began
	<-began
	all.Wait()
}

func TestTooManyValuesAreRejected(t *testing.T) {
	s := newServed(t, nil)
	body := `{"x":[` + strings.Repeat("{},", int(reviewSize().Values)+1) + `{}]}`
	status, answer := s.do(t, http.MethodPost, reviewPath, "application/json", strings.NewReader(body))
	assert.Equal(t, http.StatusRequestEntityTooLarge, status)
	assert.Contains(t, answer, "the request body has too many JSON values: the limit is 250000")
}
