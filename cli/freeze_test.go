package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/cli/view"
)

func TestFlagsOfAFreeze(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 1, time.UTC)
	for name, c := range map[string]struct {
		flags freezeFlags
		until string
		fails string
	}{
		"all, until unfreeze":       {freezeFlags{all: true}, "", ""},
		"for a time":                {freezeFlags{selector: "tier=edge", end: FreezeEnd{duration: 2 * time.Hour}}, "2026-11-27T14:00:01Z", ""},
		"until a time":              {freezeFlags{all: true, end: FreezeEnd{until: "2026-11-28T00:00:00+01:00"}}, "2026-11-27T23:00:00Z", ""},
		"nothing is selected":       {freezeFlags{}, "", "either with --selector or with --all"},
		"two selections":            {freezeFlags{all: true, selector: "a=b"}, "", "either with --selector or with --all"},
		"a selector with a mistake": {freezeFlags{selector: "a=b=c"}, "", "--selector: "},
		"a selector of nothing":     {freezeFlags{selector: "tier=edge,tier=core"}, "", `--selector "tier=edge,tier=core" selects nothing, because its requirements for label tier exclude each other`},
		"two ends":                  {freezeFlags{all: true, end: FreezeEnd{until: "2026-11-28T00:00:00Z", duration: time.Hour}}, "", "use either --until or --for"},
		"an end in the past":        {freezeFlags{all: true, end: FreezeEnd{until: "2026-11-27T12:00:00Z"}}, "", "--until 2026-11-27T12:00:00Z has passed; now it is 2026-11-27T12:00:00Z"},
		"a negative duration":       {freezeFlags{all: true, end: FreezeEnd{duration: -time.Hour}}, "", "--for must be positive"},
		"no time":                   {freezeFlags{all: true, end: FreezeEnd{until: "tomorrow"}}, "", `--until "tomorrow" is not a time such as 2026-11-27T14:00:00Z: use this format, or a duration such as --for 2h`},
	} {
		t.Run(name, func(t *testing.T) {
			freeze, err := c.flags.freeze("friday", now)
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			if c.until == "" {
				assert.Nil(t, freeze.Spec.Until)
				return
			}
			assert.Equal(t, c.until, freeze.Spec.Until.Format(time.RFC3339))
		})
	}
}

func TestAFreezeDescribesItsEffect(t *testing.T) {
	assert.Equal(t, "rolloutfreeze/a created\nfrozen: 300 SidecarSets, 12 rollouts in progress stop within 2 seconds\nnext: kubectl sidecarset unfreeze a\n",
		(&frozen{Name: "a", SidecarSets: 300, InProgress: 12}).Text(view.Style{}))
	assert.Contains(t, (&frozen{Name: "a", SidecarSets: 1}).Text(view.Style{}), "frozen: 1 SidecarSet, no rollout in progress\n")
	assert.Contains(t, (&frozen{Name: "a"}).Text(view.Style{}), "no SidecarSet has these labels")
	assert.Equal(t, "rolloutfreeze/a deleted\n2 SidecarSets unfrozen; rollouts continue\n1 SidecarSet still frozen by other RolloutFreezes: kubectl get rolloutfreezes\n",
		(&unfrozen{Deleted: []string{"a"}, SidecarSets: 2, StillFrozen: 1}).Text(view.Style{}))
}
