package cli

import (
	"context"
	"errors"
	"time"

	sdk "go.temporal.io/sdk/client"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/temporal"
)

// Models reads the models that the commands list and status print, so that the UI can show the same data.
type Models struct {
	cluster    *cluster
	runs       *runs
	temporalUI string
}

// Sources are the connections of Models.
type Sources struct {
	// Cached reads SidecarSets with their managed fields, RolloutPolicies, pods, namespaces and
	// revisions. Live reads nodes.
	Cached client.Reader
	Live   client.Client
	// Temporal is a client with TemporalOptions.
	Temporal        sdk.Client
	TemporalOptions temporal.Options
	// TemporalUI is the URL of the Temporal UI. If TemporalUI is empty, Models.Status returns the URL in the
	// status of the SidecarSet.
	TemporalUI      string
	SystemNamespace string
}

// NewModels returns Models that read from a cluster and from Temporal.
func NewModels(from Sources) *Models {
	return &Models{
		cluster:    &cluster{Reader: from.Cached, live: from.Live, systemNamespace: from.SystemNamespace},
		runs:       &runs{from.Temporal, from.TemporalOptions},
		temporalUI: from.TemporalUI,
	}
}

// List returns the summaries of all SidecarSets, sorted by name, with the same data as list --watch.
func (m *Models) List(ctx context.Context, now time.Time) (view.Summaries, error) {
	sets, err := m.cluster.sets(ctx)
	if err != nil {
		return nil, err
	}
	in := m.cluster.listInput(ctx, sets, m.runs.answers)
	in.Now = now
	return view.NewSummaries(in), nil
}

// Status returns the rollout of a SidecarSet, and the URL of the newest run in the Temporal UI. The URL is
// empty if neither Sources nor the status contains a URL. If Temporal does not respond, the rollout contains
// the reason why the run is unknown.
func (m *Models) Status(ctx context.Context, name string, now time.Time) (*view.Rollout, string, error) {
	set, err := m.cluster.set(ctx, name)
	if err != nil {
		return nil, "", err
	}
	rollout, err := m.cluster.rollout(ctx, set, m.cluster.reads(ctx, set, m.runs.input, now))
	switch {
	case m.temporalUI != "":
		return rollout, runURL(m.temporalUI, m.runs.options.Namespace, set), err
	case set.Status.Rollout != nil:
		return rollout, set.Status.Rollout.URL, err
	}
	return rollout, "", err
}

// IsNoSuchSet reports whether Status failed because the SidecarSet does not exist.
func IsNoSuchSet(err error) bool { return errors.Is(err, errNoSuchSet) }
