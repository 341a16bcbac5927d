package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/protocol"
)

func TestSpec12_7_EachMemberHearsOfAFreeze(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := &protocol.FleetRegistry{}
	Announce(r, protocol.FleetMember{UID: "a"})
	assert.Empty(t, Unaware(r))
	SetFreeze(r, protocol.FleetFreeze{Frozen: true, Reason: "sales"}, now)
	assert.Equal(t, []string{"a"}, Unaware(r))
	Hear(r, "a", r.Freeze.Sequence)
	assert.Empty(t, Unaware(r))
	Announce(r, protocol.FleetMember{UID: "b"})
	assert.Equal(t, []string{"b"}, Unaware(r), "a cluster that joins")
	Announce(r, protocol.FleetMember{UID: "a"})
	assert.Equal(t, []string{"a", "b"}, Unaware(r), "a cluster that starts again")
	SetFreeze(r, protocol.FleetFreeze{}, now)
	Hear(r, "a", 1)
	assert.Equal(t, []string{"a", "b"}, Unaware(r), "the end of the freeze is news")
	Hear(r, "a", 2)
	assert.Equal(t, []string{"b"}, Unaware(r))
}

func TestSpec12_7_WrongFreezesAreRejected(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	require.ErrorContains(t, CheckFreeze(protocol.FleetFreeze{}, now), "a freeze needs a reason")
	require.ErrorContains(t, CheckFreeze(protocol.FleetFreeze{Reason: "sales", Until: &now}, now), "would have ended")
	require.NoError(t, CheckFreeze(protocol.FleetFreeze{Reason: "sales"}, now))
}
