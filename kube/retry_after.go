package kube

import (
	"net/http"
	"strconv"
)

// maxRetryAfter is the longest Retry-After of an unavailable API server that is
// obeyed, in seconds.
const maxRetryAfter = 1

// retryAfterLimiter shortens the Retry-After of an API server that is starting. Such
// a server answers 503 with five seconds until it has read the definitions, which
// takes a fraction of one; client-go obeys, and no reflector hears of it. The
// Retry-After of an overloaded server, with 429, stays.
type retryAfterLimiter struct{ http.RoundTripper }

func newRetryAfterLimiter(next http.RoundTripper) http.RoundTripper { return retryAfterLimiter{next} }

// RoundTrip implements http.RoundTripper.
func (l retryAfterLimiter) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.RoundTripper.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusServiceUnavailable {
		return response, err
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > maxRetryAfter {
		response.Header.Set("Retry-After", strconv.Itoa(maxRetryAfter))
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the transport.
func (l retryAfterLimiter) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }
