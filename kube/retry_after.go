package kube

import (
	"net/http"
	"strconv"
)

// maxRetryAfter is the longest Retry-After of an unavailable API server, in seconds.
const maxRetryAfter = 1

// retryAfterLimiter limits the Retry-After of responses with status 503 to maxRetryAfter. A starting API server
// sends a Retry-After of five seconds, although the start takes one second. client-go would wait for five
// seconds inside the request. retryAfterLimiter does not change the Retry-After of an overloaded API server
// (429).
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

// WrappedRoundTripper implements net.RoundTripperWrapper of client-go.
func (l retryAfterLimiter) WrappedRoundTripper() http.RoundTripper { return l.RoundTripper }
