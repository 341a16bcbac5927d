package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	sdk "go.temporal.io/sdk/client"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/revision"
)

const (
	// reportInterval is the time between two lists of the SidecarSets. Content without a permit is
	// reported again after repeatInterval, and the member after announceInterval, because the fleet may
	// have lost its data.
	reportInterval   = 2 * time.Second
	repeatInterval   = 5 * time.Minute
	announceInterval = time.Hour
)

// Reporter announces a member, and reports the content of its SidecarSets to the fleet.
type Reporter struct {
	*Member
	// Cache lists SidecarSets from an informer.
	Cache client.Reader
	Self  protocol.FleetMember
	Log   logr.Logger

	reported map[types.UID]report
	down     bool
}

// report is the last report about a SidecarSet.
type report struct {
	generation int64
	hash       string
	at         time.Time
}

// Run reports until the context ends.
func (r *Reporter) Run(ctx context.Context) error {
	r.reported = map[types.UID]report{}
	var announced time.Time
	ticker := r.Clock.NewTicker(reportInterval)
	defer ticker.Stop()
	for {
		var err error
		if announced.IsZero() || r.Clock.Since(announced) >= announceInterval {
			err = r.send(ctx, protocol.FleetRegistryID, protocol.AnnounceSignal, r.Self, protocol.FleetRegistryWorkflow, protocol.FleetRegistry{})
			if err == nil {
				announced = r.Clock.Now()
			}
		}
		if err == nil {
			err = r.reportAll(ctx)
		}
		if err != nil && !r.down && ctx.Err() == nil {
			r.Log.Info("cannot report to the fleet; retrying", "cause", err.Error())
		}
		r.down = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (r *Reporter) reportAll(ctx context.Context) error {
	var all v1alpha1.SidecarSetList
	if err := r.Cache.List(ctx, &all); err != nil {
		return fmt.Errorf("list SidecarSets from the cache: %w", err)
	}
	for i := range all.Items {
		set := &all.Items[i]
		last, now := r.reported[set.UID], r.Clock.Now()
		if set.DeletionTimestamp != nil || last.generation == set.Generation && now.Sub(last.at) < repeatInterval {
			continue
		}
		completed, err := revision.Completed(set)
		if err != nil {
			continue // the operator reports the invalid SidecarSet
		}
		next := report{set.Generation, completed.Annotations[v1alpha1.HashAnnotation], now}
		if settled := fleet.Permitted(completed, nil); last.hash != next.hash || !settled {
			content := protocol.FleetContent{Member: r.Self.UID, Hash: next.hash, Settled: settled}
			state := protocol.FleetState{Set: set.Name, Phase: protocol.FleetRolling}
			if err := r.send(ctx, protocol.FleetWorkflowID(set.Name), protocol.ContentSignal, content, protocol.FleetWorkflow, state); err != nil {
				return err
			}
		}
		r.reported[set.UID] = next
	}
	return nil
}

// send signals a workflow of the fleet, and starts it if it is not open.
func (r *Reporter) send(ctx context.Context, id, signal string, payload any, workflow string, input any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	options := sdk.StartWorkflowOptions{ID: id, TaskQueue: protocol.FleetTaskQueue}
	if _, err := r.Fleet.SignalWithStartWorkflow(ctx, id, signal, payload, options, workflow, input); err != nil {
		return fmt.Errorf("send %s to workflow %s: %w", signal, id, err)
	}
	return nil
}
