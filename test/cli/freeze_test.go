package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestARolloutIsFrozenAndUnfrozen(t *testing.T) {
	scenario(t, "frosty")
	defer kubectl(t, "", "delete", "sidecarset/frosty", "deployment/frosty")
	kubectl(t, "", "label", "sidecarset", "frosty", "freeze=frosty")
	assert.Equal(t, "rolloutfreeze/friday created\nfrozen: 1 SidecarSet, no rollout in progress\nnext: kubectl sidecarset unfreeze friday\n",
		shows(t, "freeze", "friday", "--selector=freeze=frosty", "--reason=sales"))
	_, err := sidecarset(t, "freeze", "friday", "--all")
	require.ErrorContains(t, err, "there is a RolloutFreeze friday already")
	setImage(t, "frosty", "agent:v2")
	eventually(t, []string{"status", "frosty"}, "Status:    Frozen\n", "Frozen:    by RolloutFreeze friday: sales\n", "Next:      kubectl sidecarset unfreeze friday\n")
	eventually(t, []string{"list"}, " Frozen ")
	assert.Contains(t, shows(t, "why", "frosty"), "frozen by RolloutFreeze friday: sales (kubectl sidecarset unfreeze friday)\n")
	out, err := sidecarset(t, "status", "frosty", "-w", "--timeout=10s")
	require.EqualError(t, err, "the rollout of SidecarSet frosty has not ended after 10s")
	assert.Contains(t, out, "sidecarset/frosty: Frozen, frozen by RolloutFreeze friday: sales; ")

	_, err = sidecarset(t, "unfreeze", "monday")
	require.EqualError(t, err, `there is no RolloutFreeze "monday"; RolloutFreezes: friday`)
	assert.Equal(t, "rolloutfreeze/friday deleted\n1 SidecarSet unfrozen; rollouts continue\n", shows(t, "unfreeze", "friday"))
	eventually(t, []string{"status", "frosty"}, "Status:    Complete\n", "6 of 6 updated")
	assert.Equal(t, "there are no RolloutFreezes\n", shows(t, "unfreeze", "--all"))
}
