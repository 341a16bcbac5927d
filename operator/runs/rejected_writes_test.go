package runs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
)

func TestSpec8_RejectedWritesAreFoundInTheNewestBatch(t *testing.T) {
	result := func(value any) *history.HistoryEvent {
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(value)
		require.NoError(t, err)
		return &history.HistoryEvent{Attributes: &history.HistoryEvent_ActivityTaskCompletedEventAttributes{
			ActivityTaskCompletedEventAttributes: &history.ActivityTaskCompletedEventAttributes{Result: payloads}}}
	}
	pod := func(name string) protocol.PodReference { return protocol.PodReference{Namespace: "shop", Name: name} }
	other := &history.HistoryEvent{}
	next := result(protocol.NextBatchResult{Phase: protocol.PhaseProgressing, Pods: []protocol.SelectedPod{{PodReference: pod("a")}}})
	rejected := result(protocol.UpgradeBatchResult{Rejected: []protocol.RejectedPod{{PodReference: pod("b"), Reason: "no"}, {PodReference: pod("a"), Reason: "forbidden"}}})
	mixed := result(protocol.UpgradeBatchResult{Rejected: []protocol.RejectedPod{{PodReference: pod("b"), Reason: "no"}}, Written: []protocol.WrittenPod{{PodReference: pod("a")}}})
	want := Fault{"RolloutFailing", "the write of pods such as shop/a fails repeatedly: forbidden (it is retried; see the logs of the workers)"}

	assert.Equal(t, Fault{}, faultOfWrites(converter.GetDefaultDataConverter(), nil))
	assert.Equal(t, Fault{}, faultOfWrites(converter.GetDefaultDataConverter(), []*history.HistoryEvent{other, next}))
	assert.Equal(t, want, faultOfWrites(converter.GetDefaultDataConverter(), []*history.HistoryEvent{other, next, rejected, mixed}))
	assert.Equal(t, Fault{}, faultOfWrites(converter.GetDefaultDataConverter(), []*history.HistoryEvent{next, mixed, rejected}), "others can be written")
}
