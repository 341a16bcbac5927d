//go:build record

package integration

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	sdk "go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/observer"
)

// release is the release whose histories are recorded.
var release = flag.String("release", "", "release to record the histories of, such as v0.2.0")

// TestRecordHistories writes the histories of several small rollouts, for
// workflows.TestRecordedHistoriesReplay. The test does not overwrite existing histories.
func TestRecordHistories(t *testing.T) {
	require.NotEmpty(t, *release, "make record-histories RELEASE=v0.2.0")
	dir := filepath.Join("../../workflows/testdata/histories", *release)
	require.NoError(t, os.Mkdir(dir, 0o755), "the histories of a release are recorded once")
	for _, recorded := range []struct {
		name   string
		new    func(*testing.T, int32) *scenario
		record func(*scenario)
	}{
		{"cold", newColdScenario, (*scenario).recordUpgrade},
		{"hot", newHotScenario, (*scenario).recordUpgrade},
		{"paused-and-resumed", newColdScenario, (*scenario).recordPause},
		{"superseded", newColdScenario, (*scenario).recordSuperseded},
		{"hot-superseded", newHotScenario, (*scenario).recordSuperseded},
		{"failing-image", newColdScenario, (*scenario).recordFailingImage},
		{"not-upgradable", newColdScenario, (*scenario).recordNotUpgradable},
	} {
		t.Run(recorded.name, func(t *testing.T) {
			s := recorded.new(t, 6)
			recorded.record(s)
			s.awaitPhase(protocol.PhaseComplete)
			s.save(filepath.Join(dir, recorded.name))
		})
	}
}

func newColdScenario(t *testing.T, n int32) *scenario { return newScenario(t, n, nil) }

func (s *scenario) recordUpgrade() {
	s.upgradeTo("side:v2")
	s.await(observer.Converged(6))
}

func (s *scenario) recordPause() {
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	s.pause(protocol.Pause{By: "ann", Reason: "lunch"})
	s.signal(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	s.await(observer.Converged(6))
}

func (s *scenario) recordSuperseded() {
	s.upgradeTo("side:v2")
	s.await(func(v observer.View) bool { return v.Updated >= 2 })
	s.upgradeTo("side:v3")
	s.await(observer.Converged(6))
}

// Pods that cannot start use all slots, so the run sleeps.
func (s *scenario) recordFailingImage() {
	s.upgradeTo("side:bad")
	s.poll("the run to sleep", func() (bool, error) {
		described, err := stack.temporal.DescribeWorkflow(s.ctx, s.workflow(), "")
		if err != nil {
			return false, nil // The run may not have started yet.
		}
		phase, _ := described.TypedSearchAttributes.GetKeyword(sdk.NewSearchAttributeKeyKeyword(protocol.RolloutPhaseAttribute))
		return phase == string(protocol.PhaseWaiting), nil
	})
	s.upgradeTo("side:v2")
	s.await(observer.Converged(6))
}

func (s *scenario) recordNotUpgradable() {
	s.edit(`[{"op":"add","path":"/spec/containers/0/env","value":[{"name":"NEW","value":"x"}]}]`)
	s.poll("the condition of all pods", func() (bool, error) {
		return !slices.ContainsFunc(s.pods(), func(pod corev1.Pod) bool {
			return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == "SidecarSetUpgradable" && c.Status == corev1.ConditionFalse
			})
		}), nil
	})
}

// save waits until the newest run has ended, and writes the histories of this run and of its predecessors.
func (s *scenario) save(path string) {
	s.t.Helper()
	require.NoError(s.t, stack.temporal.GetWorkflow(s.ctx, s.workflow(), "").Get(s.ctx, nil))
	saveRuns(s.ctx, s.t, s.workflow(), path)
}

// saveRuns writes the histories of the newest run and of its predecessors, the newest first.
func saveRuns(ctx context.Context, t *testing.T, workflow, path string) {
	t.Helper()
	described, err := stack.temporal.DescribeWorkflow(ctx, workflow, "")
	require.NoError(t, err)
	for run := described.WorkflowExecution.RunID; run != ""; path += "-before" {
		text, err := temporal(ctx, "workflow", "show", "--workflow-id", workflow, "--run-id", run, "--output", "json")
		require.NoError(t, err, text)
		require.NoError(t, os.WriteFile(path+".json", []byte(text), 0o644))
		run = continues(ctx, t, workflow, run)
	}
}

// continues returns the ID of the run that run continues, or an empty string.
func continues(ctx context.Context, t *testing.T, workflow, run string) string {
	t.Helper()
	events := stack.temporal.GetWorkflowHistory(ctx, workflow, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	started, err := events.Next()
	require.NoError(t, err)
	return started.GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId()
}
