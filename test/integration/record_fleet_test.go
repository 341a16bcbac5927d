//go:build record

package integration

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/protocol"
)

// TestRecordFleetHistories writes the histories of a fleet of two clusters with a gate, for
// workflows.TestRecordedFleetsReplayUpToEachTask. The test does not overwrite existing histories.
func TestRecordFleetHistories(t *testing.T) {
	require.NotEmpty(t, *release, "make record-histories RELEASE=v0.2.0")
	dir := filepath.Join("../../workflows/testdata/fleets", *release)
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Mkdir(dir, 0o755), "the histories of a release are recorded once")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	canary, rest, smoke := startFleet(ctx, t)
	deliver := func(image string) {
		rest.upgradeTo(image)
		canary.upgradeTo(image)
	}
	deliver("side:v2")
	awaitFleet(ctx, t, protocol.FleetRolling)
	awaitFleet(ctx, t, protocol.FleetThrough)
	outriggerFleet(ctx, t, "", "abort", "edge-proxy", "--reason", "errors")
	awaitFleet(ctx, t, protocol.FleetFailed)
	outriggerFleet(ctx, t, "", "retry", "edge-proxy")
	awaitFleet(ctx, t, protocol.FleetThrough)
	smoke.fails.Store(true)
	deliver("side:v3")
	awaitFleet(ctx, t, protocol.FleetRolling)
	awaitFleet(ctx, t, protocol.FleetFailed)
	saveRuns(ctx, t, protocol.FleetWorkflowID("edge-proxy"), filepath.Join(dir, "gates"))
	saveRuns(ctx, t, protocol.FleetRegistryID, filepath.Join(dir, "registry"))
}
