package crd

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
	// propagationDelay is the time within which all API servers observe a changed definition.
	propagationDelay = 2 * time.Second
	// startGracePeriod is short, because a role is not ready before the first list of SidecarSets. After the
	// start, minGracePeriod gives the webhook time to restart. Each suspension doubles the grace period, up to
	// maxGracePeriod. Otherwise, two replicas that disagree on whether the conversion works would patch the
	// CustomResourceDefinition every few seconds.
	startGracePeriod = 3 * time.Second
	minGracePeriod   = 20 * time.Second
	maxGracePeriod   = 5 * time.Minute
	// readTimeout limits each list of SidecarSets, because the conversion webhook may not respond.
	readTimeout = 10 * time.Second
)

// ConversionGuard keeps SidecarSets readable while the conversion webhook does not respond. Every role must
// read SidecarSets at the start, and the webhook role must read SidecarSets before the role can convert
// SidecarSets. Only the webhook role runs the guard, because this role needs the permission to patch the
// CustomResourceDefinition anyway.
type ConversionGuard struct {
	// client bypasses the cache, because the cache cannot sync without conversion.
	client client.Client
	// readSets lists all SidecarSets, as the cache does.
	readSets func(context.Context) error
	down     func() time.Duration
	clock    clock.WithTicker
	log      logr.Logger
}

// NewConversionGuard returns a guard. down returns the duration of the current outage of the watch of
// SidecarSets, or 0.
func NewConversionGuard(direct client.Client, config *rest.Config, transport *http.Client, down func() time.Duration, log logr.Logger) (*ConversionGuard, error) {
	readSets, err := newReadSets(config, transport)
	if err != nil {
		return nil, err
	}
	return &ConversionGuard{client: direct, readSets: readSets, down: down, clock: clock.RealClock{}, log: log}, nil
}

// Prepare adds missing fields to the CustomResourceDefinition, so that a write of a SidecarSet loses no data
// (see KeepFields). Prepare then waits until all API servers observe the change.
func (g *ConversionGuard) Prepare(ctx context.Context) {
	changed, err := KeepFields(ctx, g.client)
	if err != nil {
		g.log.Info("cannot check whether SidecarSets keep all fields without conversion", "cause", err.Error())
	}
	if !changed {
		return
	}
	select {
	case <-g.clock.After(propagationDelay):
	case <-ctx.Done():
	}
}

// Run suspends the conversion when the watch of SidecarSets has been down for the grace period because of
// failed conversions. Run returns when ctx ends.
func (g *ConversionGuard) Run(ctx context.Context) {
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

// suspendIfUnconverted suspends the conversion if SidecarSets cannot be converted, and reports whether the
// conversion was suspended.
func (g *ConversionGuard) suspendIfUnconverted(ctx context.Context) bool {
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
		g.log.Info("suspended the conversion of SidecarSets until the webhook role claims it: no webhook answered", "cause", cause.Error())
	}
	return changed
}

// newReadSets returns a function that lists the SidecarSets without retries. Retries would delay the result
// while the API server cannot fill the watch cache of SidecarSets.
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

// unconverted reports whether err is caused by a failed conversion. unconverted searches the message of the
// error, because the API server returns no specific reason for a failed conversion.
func unconverted(err error) bool {
	return err != nil && strings.Contains(err.Error(), "conversion webhook for "+v1alpha1.GroupVersion.Group+"/")
}
