//go:build record

package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// TestRecordEvictionHistories writes the history of evictions that halt, are resumed, are paused, and are
// resumed again, for workflows.TestRecordedEvictionsReplayUpToEachTask. The test does not overwrite existing
// histories.
func TestRecordEvictionHistories(t *testing.T) {
	require.NotEmpty(t, *release, "make record-histories RELEASE=v0.2.0")
	dir := filepath.Join("../../workflows/testdata/evictions", *release)
	require.NoError(t, os.MkdirAll(filepath.Dir(dir), 0o755))
	require.NoError(t, os.Mkdir(dir, 0o755), "the histories of a release are recorded once")
	s := newBudgetedScenario(t, 4)
	s.editEnvironment("debug")
	repair := s.breakWebhook()
	s.evict()
	s.awaitEvictions("the halt", func(e *outriggerv1.EvictionStatus) bool { return len(e.Failed) > 0 })
	repair()
	s.signalEvictions(protocol.PauseSignal, protocol.Pause{By: "ann", Reason: "lunch"})
	s.awaitEvictions("the pause", func(e *outriggerv1.EvictionStatus) bool { return e.PausedBy == "ann" })
	s.signalEvictions(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	s.awaitEvictions("the evictions", func(e *outriggerv1.EvictionStatus) bool { return e.Evicted == 5 && e.Since == nil })
	s.patchPolicy(`{"notUpgradable":{"action":"Leave"}}`)
	id := protocol.EvictionWorkflowID(s.name, s.policyUID())
	require.NoError(t, stack.temporal.SignalWorkflow(s.ctx, id, "", protocol.WakeSignal, nil))
	require.NoError(t, stack.temporal.GetWorkflow(s.ctx, id, "").Get(s.ctx, nil))
	saveRuns(s.ctx, t, id, filepath.Join(dir, "halted"))
}
