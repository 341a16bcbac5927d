package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestProbeRequiresStatus200(t *testing.T) {
	for status, healthy := range map[int]bool{
		http.StatusOK: true, http.StatusNoContent: false, http.StatusServiceUnavailable: false,
	} {
		answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		for _, server := range []*httptest.Server{httptest.NewServer(answer), httptest.NewTLSServer(answer)} {
			assert.Equal(t, healthy, probe(t.Context(), []string{server.URL}) == nil, "%d from %s", status, server.URL)
			server.Close()
		}
	}
}

func TestProbeFailsWithoutAServer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	require.ErrorContains(t, probe(t.Context(), []string{server.URL}), "ask for health")
}

func TestProbeRequiresOneURL(t *testing.T) {
	require.ErrorIs(t, probe(t.Context(), nil), errUsage)
	require.ErrorIs(t, probe(t.Context(), []string{"a", "b"}), errUsage)
	require.ErrorIs(t, probe(t.Context(), []string{":"}), errUsage)
}
