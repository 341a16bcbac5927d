package kube

import (
	"context"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	// readableCheck is how often the watch of SidecarSets is looked at.
	readableCheck = time.Second
	// heardWithin is how long API servers may take to hear of a new definition.
	heardWithin = 2 * time.Second
	// firstPatience is how long nobody may be able to read sets before conversion
	// is suspended: time for a replica to take over. It grows each time, so that
	// two who disagree about conversion do not keep the API server busy.
	firstPatience, lastPatience = 5 * time.Second, 2 * time.Minute
)

// readable keeps SidecarSets readable while nobody converts them: every role
// needs them, and the webhook role too before it can convert.
type readable struct {
	// client reads past the cache, which waits for what is mended here.
	client client.Client
	down   func() time.Duration
	clock  clock.WithTicker
	log    logr.Logger
}

// prepare comes before anything is written.
func (r *readable) prepare(ctx context.Context) {
	changed, err := KeepFields(ctx, r.client)
	if err != nil {
		r.log.Info("cannot tell whether sets keep all fields without conversion", "cause", err.Error())
	}
	if !changed {
		return
	}
	select {
	case <-r.clock.After(heardWithin):
	case <-ctx.Done():
	}
}

func (r *readable) run(ctx context.Context) {
	tick := r.clock.NewTicker(readableCheck)
	defer tick.Stop()
	for patience := firstPatience; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		if r.down() >= patience && r.mend(ctx) {
			patience = min(2*patience, lastPatience)
		}
	}
}

// mend tells whether it changed anything.
func (r *readable) mend(ctx context.Context) bool {
	cause := r.probe(ctx)
	if !unconverted(cause) {
		return false
	}
	changed, err := SuspendConversion(ctx, r.client)
	if err != nil {
		if !apierrors.IsConflict(err) && ctx.Err() == nil {
			r.log.Error(err, "SidecarSets cannot be read, and their conversion cannot be suspended", "cause", cause.Error())
		}
		return false
	}
	if changed {
		r.log.Info("nobody converted SidecarSets: their conversion is suspended until the webhook role claims it", "cause", cause.Error())
	}
	return changed
}

// probe reads all sets, as the cache has to.
func (r *readable) probe(ctx context.Context) error {
	sets := &metav1.PartialObjectMetadataList{}
	sets.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SidecarSetList"))
	return r.client.List(ctx, sets)
}

// unconverted knows the failure of a conversion by its words: the API server has
// no reason for it.
func unconverted(err error) bool {
	return err != nil && strings.Contains(err.Error(), "conversion webhook for "+v1alpha1.GroupVersion.Group+"/")
}
