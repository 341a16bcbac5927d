package kube

import (
	"net/http"
	"strconv"
)

// shortestWait is in seconds, as Retry-After is.
const shortestWait = 1

// impatient asks again sooner than an API server that is starting says. It sends
// off for five seconds those who come before it has read the definitions, which
// takes a fraction of one; client-go obeys, and no reflector hears of it. What an
// overloaded one says, with 429, holds.
type impatient struct{ http.RoundTripper }

func newImpatient(through http.RoundTripper) http.RoundTripper { return impatient{through} }

// RoundTrip implements http.RoundTripper.
func (i impatient) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := i.RoundTripper.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusServiceUnavailable {
		return response, err
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > shortestWait {
		response.Header.Set("Retry-After", strconv.Itoa(shortestWait))
	}
	return response, nil
}

// WrappedRoundTripper lets client-go find the transport.
func (i impatient) WrappedRoundTripper() http.RoundTripper { return i.RoundTripper }
