package integration

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// workers returns the names of the workers that run by default.
func workers() []string { return []string{"worker-1", "worker-2"} }

func killWorkers(t *testing.T) {
	t.Helper()
	for _, name := range workers() {
		require.NoError(t, stack.Kill(name))
	}
}

func startWorkers(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, name := range workers() {
		require.NoError(t, stack.StartAgain(ctx, name))
	}
}

// onlyWorker starts a worker with args, and stops all other workers. At the end of the test, onlyWorker kills
// this worker and starts the other workers.
func (s *scenario) onlyWorker(name string, args ...string) {
	s.t.Helper()
	_, err := stack.StartRole(s.ctx, name, args...)
	require.NoError(s.t, err)
	for _, usual := range workers() {
		require.NoError(s.t, stack.Stop(usual))
	}
	s.t.Cleanup(func() {
		require.NoError(s.t, stack.Kill(name))
		startWorkers(context.WithoutCancel(s.ctx), s.t)
	})
}
