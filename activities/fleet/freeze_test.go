package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/fleet"
)

func TestSpec12_7_AFreezeOfTheFleetIsARolloutFreeze(t *testing.T) {
	c := newCluster(t)
	c.reachable(nil)
	c.Writer = c.Live.(client.Client)
	hear := func(wanted protocol.FleetFreeze) (*outriggerv1.RolloutFreeze, error) {
		c.do(func(ctx context.Context) error { return c.Freeze(ctx, wanted) })
		freeze := &outriggerv1.RolloutFreeze{}
		return freeze, c.Live.Get(t.Context(), client.ObjectKey{Name: fleet.FreezeName}, freeze)
	}
	until := time.Unix(1_700_000_000, 0)
	freeze, err := hear(protocol.FleetFreeze{Frozen: true, By: "ann", Reason: "sales", Until: &until})
	require.NoError(t, err)
	assert.Equal(t, "the fleet from ann: sales", freeze.Spec.Reason)
	assert.True(t, freeze.Spec.Until.Time.Equal(until))
	freeze, err = hear(protocol.FleetFreeze{Frozen: true, By: "bob", Reason: "incident"})
	require.NoError(t, err)
	assert.Equal(t, "the fleet from bob: incident", freeze.Spec.Reason)
	assert.Nil(t, freeze.Spec.Until)
	for range 2 {
		_, err = hear(protocol.FleetFreeze{})
		assert.True(t, apierrors.IsNotFound(err))
	}

	// The Temporal Service of the fleet is restored to a time before the freeze.
	began := time.Unix(1_600_000_000, 7)
	_, err = hear(protocol.FleetFreeze{Frozen: true, Reason: "outage", Since: began})
	require.NoError(t, err)
	for _, older := range []protocol.FleetFreeze{{Since: began.Add(-time.Minute)}, {Frozen: true, Reason: "sales", Since: began.Add(-time.Minute)}} {
		freeze, err = hear(older)
		require.NoError(t, err)
		assert.Equal(t, "the fleet: outage", freeze.Spec.Reason)
	}
	_, err = hear(protocol.FleetFreeze{Since: began.Add(time.Minute)})
	assert.True(t, apierrors.IsNotFound(err))
}
