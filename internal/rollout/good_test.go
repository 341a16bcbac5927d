package rollout

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/podstate"
)

func TestSpec7_5_TheEndOfARolloutIsRecordedOnce(t *testing.T) {
	upgraded := podstate.State{Updated: true, UpgradedInPlace: true, Consistent: true, Ready: true}
	recorded := upgraded
	recorded.RolloutEnded = true
	is := []v1alpha1.GoodRevision{{Hash: "taken over"}, {Revision: "s-2", Hash: "new", ResourceVersion: "8"}}
	for name, c := range map[string]struct {
		phase protocol.Phase
		ready int
		good  []v1alpha1.GoodRevision
		pod   podstate.State
		want  bool
		left  protocol.Counts
	}{
		"complete":                       {protocol.PhaseComplete, 1, nil, upgraded, true, protocol.Counts{}},
		"with the partition reached":     {protocol.PhasePartitionReached, 1, nil, upgraded, true, protocol.Counts{}},
		"still waiting":                  {protocol.PhaseWaiting, 1, nil, upgraded, false, protocol.Counts{Remaining: 1}},
		"twins are left to reset":        {protocol.PhaseWaiting, 1, nil, upgraded, false, protocol.Counts{Migrating: 1}},
		"an app fails after its upgrade": {protocol.PhaseWaiting, 1, nil, upgraded, true, protocol.Counts{Converging: 1}},
		"paused":                         {protocol.PhasePaused, 1, nil, upgraded, false, protocol.Counts{}},
		"no ready pod has the revision":  {protocol.PhaseComplete, 0, nil, upgraded, false, protocol.Counts{}},
		"recorded":                       {protocol.PhaseComplete, 1, is, recorded, false, protocol.Counts{}},
		"recorded, upgraded again since": {protocol.PhaseComplete, 1, is, upgraded, true, protocol.Counts{}},
		"recorded of content before":     {protocol.PhaseComplete, 1, []v1alpha1.GoodRevision{{Hash: "old", ResourceVersion: "9"}, is[1]}, recorded, true, protocol.Counts{}},
		"only taken over":                {protocol.PhaseComplete, 1, []v1alpha1.GoodRevision{{Hash: "new"}}, recorded, true, protocol.Counts{}},
		"only volumes have changed":      {protocol.PhaseComplete, 1, []v1alpha1.GoodRevision{{Revision: "s-1", Hash: "new", ResourceVersion: "8"}}, recorded, true, protocol.Counts{}},
	} {
		set := &v1alpha1.SidecarSet{}
		set.Status.GoodRevisions, set.Status.LatestRevision = c.good, "s-2"
		plan := &Plan{Phase: c.phase, Counts: c.left}
		plan.Counts.UpdatedReady = c.ready
		got := EndToRecord(set, &podstate.Version{Hash: "new"}, plan, []Pod{{State: c.pod}})
		assert.Equal(t, c.want, got, name)
	}
}

func TestGoodRevisionsAreFewAndTheNewestIsTheFirst(t *testing.T) {
	var known []v1alpha1.GoodRevision
	for i := range 2 * v1alpha1.MaxGoodRevisions {
		known = WithGood(known, v1alpha1.GoodRevision{Hash: fmt.Sprint(i), ResourceVersion: "1"})
	}
	assert.Len(t, known, v1alpha1.MaxGoodRevisions)
	again := WithGood(known, v1alpha1.GoodRevision{Hash: known[3].Hash, ResourceVersion: "2"})
	assert.Len(t, again, v1alpha1.MaxGoodRevisions)
	assert.Equal(t, v1alpha1.GoodRevision{Hash: known[3].Hash, ResourceVersion: "2"}, again[0])
	assert.Equal(t, known[0], again[1])
}

func TestSpec11_12_QuarantinedContentIsNotGood(t *testing.T) {
	known := []v1alpha1.GoodRevision{{Hash: "bad", ResourceVersion: "9"}, {Hash: "old", ResourceVersion: "5"}}
	assert.Equal(t, known, WithoutQuarantined(known, nil))
	assert.Equal(t, known[1:], WithoutQuarantined(known, &v1alpha1.RolloutQuarantine{Hash: "bad"}))
	assert.Equal(t, known, WithoutQuarantined(known, &v1alpha1.RolloutQuarantine{Hash: "other"}))
	assert.Equal(t, "bad", known[0].Hash, "the list belongs to the cache")
}
