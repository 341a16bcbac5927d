package workflows

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/outrigger/outrigger/api/protocol"
)

// The requests are sent while no worker polls, so a worker reads all requests in one workflow task. Lower
// case denotes a signal. A capital letter denotes an update. A question mark denotes an update that requests
// the result of the previous signal.
func TestSpec7_1_TheLastOfPausesAndResumesHolds(t *testing.T) {
	e := startEncrypted(t)
	c := e.connect("a")
	for words, paused := range map[string]bool{
		"resume resume pause": true,
		"pause resume":        false,
		"resume pause":        true,
		"pause pause resume":  false,
		"pause resume Pause":  true,
		"resume pause Resume": false,
		"pause pause? resume": false,
		"resume pause pause?": true,
	} {
		t.Run(words, func(t *testing.T) {
			id := strings.NewReplacer(" ", "-", "?", "-asks").Replace(words)
			_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: "queue"}, protocol.RolloutWorkflow, input(1))
			require.NoError(t, err)
			answered := make(chan error, 1)
			answered <- nil
			for _, word := range strings.Fields(words) {
				name, asks := strings.CutSuffix(strings.ToLower(word), "?")
				if name == word {
					require.NoError(t, c.SignalWorkflow(t.Context(), id, "", name, protocol.Pause{By: word}))
					continue
				}
				<-answered
				go func() {
					_, err := c.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
						WorkflowID: id, UpdateName: name, Args: []any{protocol.Pause{By: word, Sent: asks}}, WaitForStage: client.WorkflowUpdateStageCompleted})
					answered <- err
				}()
			}
			e.roll("a", func(client.Client) {
				require.NoError(t, <-answered)
				require.Eventually(t, func() bool {
					run, err := c.DescribeWorkflowExecution(t.Context(), id, "")
					return err == nil && run.PendingWorkflowTask == nil
				}, time.Minute, 10*time.Millisecond, "the run has read its signals")
				status := statusOf(t, c, id)
				assert.Equal(t, paused, status.Pause != nil)
				assert.Equal(t, paused, status.Phase == protocol.PhasePaused, status.Phase)
				require.NoError(t, c.TerminateWorkflow(t.Context(), id, "", "test"))
			}, func() (protocol.NextBatchResult, error) {
				return protocol.NextBatchResult{Phase: protocol.PhaseWaiting, Message: "pods start"}, nil
			})
		})
	}
}

// The run of the previous generation has read the resume, and has continued as new before the result of the
// update. The update reaches the first workflow task of the new run.
func TestSpec7_1_ANewRunAnswersAResumeOfTheFormerRun(t *testing.T) {
	e := startEncrypted(t)
	c := e.connect("a")
	_, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: "continued", TaskQueue: "queue", Memo: map[string]any{protocol.ResumeMemo: protocol.Pause{By: "ann"}},
	}, protocol.RolloutWorkflow, input(1))
	require.NoError(t, err)
	answered := make(chan error, 1)
	go func() {
		update, err := c.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: "continued", UpdateName: protocol.ResumeUpdate, Args: []any{protocol.Pause{By: "ann", Sent: true}}, WaitForStage: client.WorkflowUpdateStageCompleted})
		if err == nil {
			err = update.Get(t.Context(), nil)
		}
		answered <- err
	}()
	e.roll("a", func(client.Client) {
		require.NoError(t, <-answered)
		require.NoError(t, c.TerminateWorkflow(t.Context(), "continued", "", "test"))
	}, func() (protocol.NextBatchResult, error) {
		return protocol.NextBatchResult{Phase: protocol.PhaseWaiting, Message: "pods start"}, nil
	})
}
