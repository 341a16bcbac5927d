package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// checkInterval is the time between two checks of the watch of SidecarSets.
	checkInterval = time.Second
	// propagationDelay is how long a changed definition takes to reach all API servers.
	propagationDelay = 2 * time.Second
	// startGracePeriod is short because a process that has never seen the sets can do
	// nothing. Later, the webhook gets time to come back or to move to another
	// replica, twice as much after each suspension, so that two processes that
	// disagree do not keep the API server busy.
	startGracePeriod = 3 * time.Second
	minGracePeriod   = 20 * time.Second
	maxGracePeriod   = 5 * time.Minute
	// readTimeout bounds a request that may find no webhook to convert for it.
	readTimeout = 10 * time.Second
)

// conversionGuard keeps SidecarSets readable while no webhook converts them: every
// role needs them, also the webhook role before it can convert.
type conversionGuard struct {
	// client reads past the cache, which cannot sync before this has acted.
	client client.Client
	// readSets lists all sets, as the cache has to.
	readSets func(context.Context) error
	down     func() time.Duration
	clock    clock.WithTicker
	log      logr.Logger
}

// prepare must be called before this process writes any set.
func (g *conversionGuard) prepare(ctx context.Context) {
	changed, err := KeepFields(ctx, g.client)
	if err != nil {
		g.log.Info("cannot tell whether sets keep all fields without conversion", "cause", err.Error())
	}
	if !changed {
		return
	}
	select {
	case <-g.clock.After(propagationDelay):
	case <-ctx.Done():
	}
}

func (g *conversionGuard) run(ctx context.Context) {
	tick := g.clock.NewTicker(checkInterval)
	defer tick.Stop()
	gracePeriod, started := startGracePeriod, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		down := g.down()
		if down == 0 && !started {
			gracePeriod, started = minGracePeriod, true
		}
		if down >= gracePeriod && g.suspendIfUnconverted(ctx) {
			gracePeriod, started = min(max(2*gracePeriod, minGracePeriod), maxGracePeriod), true
		}
	}
}

// suspendIfUnconverted reports whether it suspended the conversion.
func (g *conversionGuard) suspendIfUnconverted(ctx context.Context) bool {
	cause := g.readSets(ctx)
	if !unconverted(cause) {
		return false
	}
	changed, err := SuspendConversion(ctx, g.client)
	if err != nil {
		if !apierrors.IsConflict(err) && ctx.Err() == nil {
			g.log.Error(err, "SidecarSets cannot be read, and their conversion cannot be suspended", "cause", cause.Error())
		}
		return false
	}
	if changed {
		g.log.Info("nobody converted SidecarSets: their conversion is suspended until the webhook role claims it", "cause", cause.Error())
	}
	return changed
}

// newReadSets returns a list request without retries: client-go repeats for long what an API
// server refuses that cannot fill its own watch cache.
func newReadSets(config *rest.Config, transport *http.Client) (func(context.Context) error, error) {
	lister, err := discovery.NewDiscoveryClientForConfigAndClient(config, transport)
	if err != nil {
		return nil, fmt.Errorf("set up a client: %w", err)
	}
	path := "/apis/" + v1alpha1.GroupVersion.String() + "/sidecarsets"
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		return lister.RESTClient().Get().AbsPath(path).MaxRetries(0).Do(ctx).Error()
	}, nil
}

// unconverted reports whether a conversion failed. Only the message shows that: the
// API server has no reason for it.
func unconverted(err error) bool {
	return err != nil && strings.Contains(err.Error(), "conversion webhook for "+v1alpha1.GroupVersion.Group+"/")
}
