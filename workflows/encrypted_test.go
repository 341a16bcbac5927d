package workflows

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/devserver"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
)

const (
	timeout = time.Minute
	pause   = 20 * time.Millisecond
)

// encryptedRun is a run with encrypted payloads, on a separate server.
type encryptedRun struct {
	t       *testing.T
	address string
	keys    string
	run     client.WorkflowRun
}

func startEncrypted(t *testing.T) *encryptedRun {
	server := devserver.Start(t, "../bin/temporal", testsuite.DevServerOptions{
		SearchAttributes: sdk.NewSearchAttributes(
			sdk.NewSearchAttributeKeyKeyword(protocol.SidecarSetAttribute).ValueSet(""),
			sdk.NewSearchAttributeKeyInt64(protocol.GenerationAttribute).ValueSet(0),
			sdk.NewSearchAttributeKeyKeyword(protocol.RolloutPhaseAttribute).ValueSet(""),
		),
	})
	e := &encryptedRun{t: t, address: server.FrontendHostPort(), keys: t.TempDir()}
	for _, id := range []string{"a", "b"} {
		key := make([]byte, 32)
		_, _ = rand.Read(key)
		require.NoError(t, os.WriteFile(filepath.Join(e.keys, id), []byte(base64.StdEncoding.EncodeToString(key)), 0o600))
	}
	return e
}

// connect returns a client that encrypts with a key.
func (e *encryptedRun) connect(key string) client.Client {
	opened, err := codec.Open(codec.Options{KeyDir: e.keys, KeyID: key})
	require.NoError(e.t, err)
	c, err := temporal.NewLazyClient(temporal.Options{Address: e.address, Namespace: client.DefaultNamespace, Codec: opened, HostsWorkflows: true}, logr.Discard())
	require.NoError(e.t, err)
	e.t.Cleanup(c.Close)
	return c
}

// roll starts a worker with an encryption key and executes one step of the run.
func (e *encryptedRun) roll(key string, step func(c client.Client), plan func() (protocol.NextBatchResult, error)) {
	c := e.connect(key)
	w := worker.New(c, "queue", worker.Options{Interceptors: Interceptors()})
	w.RegisterWorkflowWithOptions(Rollout, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	w.RegisterActivityWithOptions(func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) { return plan() },
		activity.RegisterOptions{Name: protocol.NextBatchActivity})
	require.NoError(e.t, w.Start())
	defer w.Stop()
	step(c)
}

func (e *encryptedRun) history() *history.History {
	c := e.connect("a")
	all := &history.History{}
	events := c.GetWorkflowHistory(e.t.Context(), e.run.GetID(), e.run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		require.NoError(e.t, err)
		all.Events = append(all.Events, event)
	}
	return all
}

// replayWith replays a history with the keys in a directory.
func replayWith(t *testing.T, keys string, recorded *history.History) error {
	opened, err := codec.Open(codec.Options{KeyDir: keys, KeyID: "b"})
	require.NoError(t, err)
	payloads := opened.WorkflowDataConverter()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		DataConverter:    payloads,
		Interceptors:     Interceptors(),
		FailureConverter: sdk.NewDefaultFailureConverter(sdk.DefaultFailureConverterOptions{DataConverter: payloads, EncodeCommonAttributes: true}),

		DisableDeadlockDetection: true,
	})
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(Rollout, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	return replayer.ReplayWorkflowHistory(nil, recorded)
}

// A run starts with one key and continues with another key. The history contains a pause and a failure with
// the name of a pod, and both must be encrypted.
func TestEncryptedHistoriesReplayOverARotation(t *testing.T) {
	e := startEncrypted(t)
	byAnn := protocol.Pause{By: "ann", Reason: "the-reason-of-the-pause"}
	e.roll("a", func(c client.Client) {
		var err error
		e.run, err = c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "one", TaskQueue: "queue", StaticSummary: "name-in-the-summary"}, protocol.RolloutWorkflow,
			protocol.RolloutInput{SidecarSet: protocol.SetReference{Name: "set", UID: "uid-in-the-input"}, Generation: 1, Pause: &byAnn})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return status(t, c).Phase == protocol.PhasePaused }, timeout, pause)
	}, func() (protocol.NextBatchResult, error) {
		return protocol.NextBatchResult{Phase: protocol.PhaseProgressing, Message: "words-of-the-plan"}, nil
	})
	failed := false
	e.roll("b", func(c client.Client) {
		assert.Equal(t, &byAnn, status(t, c).Pause, "read with a key that no longer encrypts")
		require.NoError(t, c.SignalWorkflow(t.Context(), "one", "", protocol.ResumeSignal, protocol.Pause{By: "ann"}))
		require.NoError(t, e.run.Get(t.Context(), nil))
	}, func() (protocol.NextBatchResult, error) {
		if !failed {
			failed = true
			return protocol.NextBatchResult{}, sdk.NewApplicationError("name-in-a-failure", "rejected", "name-in-its-details")
		}
		return protocol.NextBatchResult{Phase: protocol.PhaseComplete, Message: "words-of-the-end"}, nil
	})

	recorded := e.history()
	raw, err := proto.Marshal(recorded)
	require.NoError(t, err)
	for _, words := range []string{"name-in-", "uid-in-", "the-reason-", "words-of-"} {
		assert.NotContains(t, string(raw), words)
	}
	assert.Contains(t, string(raw), "Encoded failure")
	for _, id := range []string{"a", "b"} {
		// The metadata of a payload contains the id of the key in the encoding of protobuf.
		assert.Contains(t, string(raw), "encryption-key-id\x12\x01"+id)
	}
	require.NoError(t, replayWith(t, e.keys, recorded))

	require.NoError(t, os.Remove(filepath.Join(e.keys, "a")))
	require.ErrorContains(t, replayWith(t, e.keys, recorded), `encrypted with key "a", which is not in `+e.keys)
}

// Runs of a release without encryption continue, because unencrypted payloads are readable.
func TestRecordedHistoriesReplayWithKeys(t *testing.T) {
	keys := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(keys, "b"), []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600))
	for _, file := range histories(t) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		recorded := &history.History{}
		require.NoError(t, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, recorded))
		require.NoError(t, replayWith(t, keys, recorded), file)
	}
}

func status(t *testing.T, c client.Client) protocol.RolloutStatus { return statusOf(t, c, "one") }

func statusOf(t *testing.T, c client.Client, id string) (answer protocol.RolloutStatus) {
	value, err := c.QueryWorkflow(t.Context(), id, "", protocol.StatusQuery)
	if err != nil {
		return answer
	}
	require.NoError(t, value.Get(&answer))
	return answer
}
