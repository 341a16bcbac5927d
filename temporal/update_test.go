package temporal

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/mocks"
)

func TestAnUpdateWhoseWorkflowTaskFailsIsSentAgain(t *testing.T) {
	lost := serviceerror.NewWorkflowNotReady("Unable to perform workflow execution update due to unexpected workflow task failure.")
	c, handle := &mocks.Client{}, &mocks.WorkflowUpdateHandle{}
	options := client.UpdateWorkflowOptions{WorkflowID: "one", UpdateName: "resume"}
	awaits := options
	awaits.WaitForStage = client.WorkflowUpdateStageCompleted
	c.On("UpdateWorkflow", mock.Anything, awaits).Return(nil, lost).Once()
	c.On("UpdateWorkflow", mock.Anything, awaits).Return(handle, nil)
	handle.On("Get", mock.Anything, nil).Return(lost).Once()
	handle.On("Get", mock.Anything, nil).Return(nil).Once()
	require.NoError(t, Update(t.Context(), c, options, nil))
	c.AssertNumberOfCalls(t, "UpdateWorkflow", 3)

	rejected := serviceerror.NewNotFound("workflow not found")
	handle.On("Get", mock.Anything, nil).Return(rejected).Once()
	require.ErrorIs(t, Update(t.Context(), c, options, nil), rejected)

	ended, end := context.WithCancel(t.Context())
	end()
	handle.On("Get", mock.Anything, nil).Return(lost)
	assert.ErrorIs(t, Update(ended, c, options, nil), lost)
}
