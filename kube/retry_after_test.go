package kube

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnAPIServerThatIsStartingIsRetriedSoon(t *testing.T) {
	for name, c := range map[string]struct {
		code        int
		asked, kept string
	}{
		"starting":                 {http.StatusServiceUnavailable, "5", "1"},
		"starting, in a moment":    {http.StatusServiceUnavailable, "0", "0"},
		"starting, at some time":   {http.StatusServiceUnavailable, "", ""},
		"overloaded":               {http.StatusTooManyRequests, "5", "5"},
		"unavailable until a date": {http.StatusServiceUnavailable, "Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:28:00 GMT"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.asked != "" {
					w.Header().Set("Retry-After", c.asked)
				}
				w.WriteHeader(c.code)
			}))
			t.Cleanup(server.Close)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			require.NoError(t, err)
			response, err := newRetryAfterLimiter(http.DefaultTransport).RoundTrip(request)
			require.NoError(t, err)
			assert.Equal(t, c.kept, response.Header.Get("Retry-After"))
		})
	}
}
