package runs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	opened    = enums.WORKFLOW_EXECUTION_STATUS_RUNNING
	completed = enums.WORKFLOW_EXECUTION_STATUS_COMPLETED

	generation = 3
)

func TestOnlyThePauseOfARunMayBeUnreadable(t *testing.T) {
	plain := converter.GetDefaultDataConverter()
	attribute, err := plain.ToPayload(generation)
	require.NoError(t, err)
	info := &workflow.WorkflowExecutionInfo{
		Status:           opened,
		SearchAttributes: &common.SearchAttributes{IndexedFields: map[string]*common.Payload{protocol.GenerationAttribute: attribute}},
		Memo: &common.Memo{Fields: map[string]*common.Payload{
			protocol.PauseMemo: {Metadata: map[string][]byte{converter.MetadataEncoding: []byte("binary/encrypted")}, Data: []byte("sealed")}}},
	}
	found, err := Read(plain, info)
	require.NoError(t, err)
	require.ErrorContains(t, found.Unreadable, "memo hold: ")
	assert.True(t, found.Open())
	assert.Equal(t, int64(generation), found.Generation)

	info.Memo.Fields = map[string]*common.Payload{protocol.ResumeMemo: info.Memo.Fields[protocol.PauseMemo]}
	found, err = Read(plain, info)
	require.NoError(t, err)
	require.NoError(t, found.Unreadable, "the resume is needed only for an event")
	assert.Equal(t, &protocol.Pause{}, found.Resumed)
}

func TestOnlyRunsThatWaitForASignalAreWoken(t *testing.T) {
	sleeping := Run{Status: opened, Phase: protocol.PhaseWaiting, Events: 9}
	assert.True(t, sleeping.WaitsForSignal())
	sleeping.Activities = pendingOf(protocol.ResetBatchActivity)
	assert.True(t, sleeping.WaitsForSignal(), "resets free slots for others")
	for name, r := range map[string]Run{
		"at work":          {Status: opened, Phase: protocol.PhaseProgressing},
		"paused":           {Status: opened, Phase: protocol.PhasePaused},
		"ended":            {Status: completed, Phase: protocol.PhaseWaiting},
		"about to plan":    {Status: opened, Phase: protocol.PhaseWaiting, Events: 9, Task: &workflow.PendingWorkflowTaskInfo{}},
		"with a batch":     {Status: opened, Phase: protocol.PhaseWaiting, Events: 9, Activities: pendingOf(protocol.UpgradeBatchActivity)},
		"about to choose":  {Status: opened, Phase: protocol.PhaseWaiting, Events: 9, Activities: pendingOf(protocol.AwaitMigrationActivity, protocol.NextBatchActivity)},
		"continued as new": {Status: opened, Phase: protocol.PhaseWaiting, Events: 1},
		"no run":           {Phase: protocol.PhaseWaiting},
	} {
		assert.False(t, r.WaitsForSignal(), name)
	}
}

func pendingOf(activities ...string) (infos []*workflow.PendingActivityInfo) {
	for _, name := range activities {
		infos = append(infos, &workflow.PendingActivityInfo{ActivityType: &common.ActivityType{Name: name}})
	}
	return infos
}
