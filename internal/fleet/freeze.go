package fleet

import (
	"errors"
	"fmt"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
)

// CheckFreeze rejects a freeze without a reason, with an end that is not after now, or with texts that are
// too long.
func CheckFreeze(freeze protocol.FleetFreeze, now time.Time) error {
	switch {
	case freeze.Reason == "":
		return errors.New("a freeze needs a reason")
	case freeze.Until != nil && !freeze.Until.After(now):
		return fmt.Errorf("the freeze would have ended at %s", freeze.Until.UTC().Format(time.RFC3339))
	}
	return CheckText(protocol.Approval{By: freeze.By, Reason: freeze.Reason})
}

// SetFreeze records the start or the end of a freeze with a new sequence number, so that each member is
// notified. since is the time of this change. A member ignores a change that is older than the freeze of the
// member (SPEC 12.7.4).
func SetFreeze(r *protocol.FleetRegistry, freeze protocol.FleetFreeze, since time.Time) {
	freeze.Sequence, freeze.Since = 1, since
	if r.Freeze != nil {
		freeze.Sequence = r.Freeze.Sequence + 1
	}
	r.Freeze = &freeze
}

// FreezeName is the name of the RolloutFreeze that a freeze of the fleet creates in each member.
const FreezeName = "outrigger-fleet"

// Announce records a member, and marks the member as not notified of the newest freeze. The cluster may have
// lost its RolloutFreeze, so the member has to be notified again.
func Announce(r *protocol.FleetRegistry, member protocol.FleetMember) {
	if r.Members == nil {
		r.Members = map[string]protocol.FleetMember{}
	}
	r.Members[member.UID] = member
	delete(r.Heard, member.UID)
}

// Named returns the uids of the members whose name or uid is cluster. Several members may have the same name,
// because a rebuilt cluster keeps the name of the replaced cluster.
func Named(r *protocol.FleetRegistry, cluster string) (uids []string) {
	for _, uid := range Keys(r.Members) {
		if uid == cluster || r.Members[uid].Name == cluster {
			uids = append(uids, uid)
		}
	}
	return uids
}

// Unaware returns the uids of the members that were not notified of the newest freeze or of its end.
func Unaware(r *protocol.FleetRegistry) (uids []string) {
	if r.Freeze == nil {
		return nil
	}
	for _, uid := range Keys(r.Members) {
		if r.Heard[uid] != r.Freeze.Sequence {
			uids = append(uids, uid)
		}
	}
	return uids
}

// Hear records that a member was notified of a freeze or of its end.
func Hear(r *protocol.FleetRegistry, uid string, sequence int) {
	if r.Heard == nil {
		r.Heard = map[string]int{}
	}
	r.Heard[uid] = sequence
}
