package workflows

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"

	"go.temporal.io/sdk/log"

	"github.com/outrigger/outrigger/api/protocol"
)

func (s *rolloutSuite) TestEachDecisionOfARunIsOneLine() {
	var out bytes.Buffer
	s.SetLogger(log.NewStructuredLogger(slog.New(slog.NewJSONHandler(&out, nil))))
	defer s.SetLogger(nil)
	s.SetupTest()
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		result := written(input.Pods[:1])
		result.Rejected = []protocol.RejectedPod{failedPod("b", "Forbidden")}
		return result, nil
	}
	s.answers(batch("a", "b"), ends(protocol.PhaseComplete))
	s.run()

	type line struct {
		Level, Msg, SidecarSet, Pod, Cause, Phase string
		RunID                                     string `json:"runID"`
		Generation, Batch, Written, Rejected      int
	}
	var lines []line
	for decoder := json.NewDecoder(&out); decoder.More(); {
		var one line
		s.Require().NoError(decoder.Decode(&one))
		if one.SidecarSet != "" {
			lines = append(lines, one)
		}
	}
	s.Equal([]line{
		{Level: "INFO", Msg: "batch chosen", SidecarSet: "logs", RunID: testRun, Generation: 1, Batch: 1},
		{Level: "INFO", Msg: "batch written", SidecarSet: "logs", RunID: testRun, Generation: 1, Batch: 1, Written: 1, Rejected: 1},
		{Level: "WARN", Msg: "pod rejected", SidecarSet: "logs", RunID: testRun, Generation: 1, Batch: 1, Pod: "default/b", Cause: "Forbidden"},
		{Level: "INFO", Msg: "rollout ended", SidecarSet: "logs", RunID: testRun, Generation: 1, Phase: "Complete"},
	}, lines)
}
