package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nowhere sets an address of Temporal at which no server listens.
const nowhere = "--temporal-address=127.0.0.1:1"

func TestActionsNeedNoAccessToTemporal(t *testing.T) {
	defer staged(t, "acted", `[{name: canary, upTo: 1, approval: {}}, {upTo: 2, bake: 1h}]`)()
	setImage(t, "acted", "agent:v2")
	eventually(t, []string{"status", "acted"}, "Status:    AwaitingApproval (step 1 of 2)")
	assert.Equal(t, "sidecarset/acted: step 1 of 2 (canary) is approved\nnext: kubectl sidecarset "+nowhere+" status acted --watch\n",
		shows(t, "approve", "acted", "--via-cluster", nowhere, "--reason=fine"))
	eventually(t, []string{"status", "acted"}, "Status:    Baking (step 2 of 2, ")
	_, err := sidecarset(t, "approve", "acted", "--via-cluster", nowhere, "--step=1")
	require.EqualError(t, err, "approve the rollout of SidecarSet acted: the action is for step 1, and the current step is step 2 of 2 (kubectl sidecarset "+nowhere+" status acted)")
	assert.Contains(t, shows(t, "pause", "acted", "--via-cluster", nowhere, "--reason=lunch"), "sidecarset/acted: paused\nnext: kubectl sidecarset "+nowhere+" resume acted\n")
	eventually(t, []string{"status", "acted"}, "Paused:    ", "by admin: lunch")
	assert.Contains(t, shows(t, "resume", "acted", "--via-cluster", nowhere), "sidecarset/acted: resumed\n")
	assert.Contains(t, shows(t, "abort", "acted", "--via-cluster", nowhere), "generation 2 is aborted")
	eventually(t, []string{"retry", "acted", "--via-cluster", nowhere}, "sidecarset/acted: the rollout of generation 2 restarts\n")
	assert.Contains(t, shows(t, "promote", "acted", "--via-cluster", nowhere, "--full"), "all steps ended")
	shows(t, "status", "acted", "--watch", "--timeout=3m")
	_, err = sidecarset(t, "pause", "--all", "--via-cluster")
	require.ErrorContains(t, err, "--via-cluster is for one SidecarSet")
}

func TestAnActionWithoutAWorkerIsWithdrawn(t *testing.T) {
	defer staged(t, "withdrawn", `[{upTo: 1, approval: {}}]`)()
	setImage(t, "withdrawn", "agent:v2")
	eventually(t, []string{"status", "withdrawn"}, "Status:    AwaitingApproval (step 1 of 1)")
	eventually(t, []string{"list"}, "AwaitingApproval (step 1 of 1)")
	require.NoError(t, stack.Kill("worker"))
	_, err := sidecarset(t, "approve", "withdrawn", "--via-cluster", nowhere)
	require.NoError(t, stack.StartAgain(t.Context(), "worker"))
	require.ErrorContains(t, err, "approve the rollout of SidecarSet withdrawn: not carried out within 15s: ")
	require.ErrorContains(t, err, "is deleted, and can take effect only in the next minute")
	assert.NotContains(t, kubectl(t, "", "get", "rolloutactions"), " withdrawn ")
	assert.Contains(t, shows(t, "approve", "withdrawn", "--via-cluster", nowhere), "sidecarset/withdrawn: step 1 of 1 is approved\n")
}
