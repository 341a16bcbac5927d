// Package devserver starts the dev server of Temporal for one test.
package devserver

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
)

const (
	attempts     = 3
	startTimeout = time.Minute
)

// Start returns a dev server that runs until the test ends. The server and the SDK choose free ports. If
// another process uses one of these ports first, the server exits, but the SDK waits for the server for most of
// an hour. Therefore, Start limits each attempt to startTimeout, and makes up to three attempts.
func Start(t testing.TB, path string, options testsuite.DevServerOptions) *testsuite.DevServer {
	t.Helper()
	options.ExistingPath, options.LogLevel, options.Stdout, options.Stderr = path, "error", io.Discard, io.Discard
	options.ClientOptions = &client.Options{Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))}
	var server *testsuite.DevServer
	var err error
	for range attempts {
		ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
		server, err = testsuite.StartDevServer(ctx, options)
		cancel()
		if err == nil {
			break
		}
	}
	require.NoError(t, err, "make builds it")
	t.Cleanup(func() { _ = server.Stop() })
	return server
}
