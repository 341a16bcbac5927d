package operator

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/kube/crd"
)

// definitionInterval is the time between two reads of the CustomResourceDefinition of SidecarSets while the
// definition lacks fields. keptInterval is the time between two reads while the definition has all fields. The
// reads continue, because a user may replace the definition.
const (
	definitionInterval = time.Second
	keptInterval       = time.Minute
)

var errLosesFields = errors.New("the CustomResourceDefinition of SidecarSets may lack fields of one version, which a write of status would lose")

// definitionCheck prevents writes of SidecarSets by the operator while the CustomResourceDefinition of
// SidecarSets lacks fields, because the API server drops unknown fields. The definition may lack fields of one
// version if a user has disabled the conversion. The webhook role adds these fields.
type definitionCheck struct {
	reader                 client.Reader
	interval, keptInterval time.Duration
	kept                   atomic.Bool
}

// Start implements manager.Runnable. If the operator has no permission to read the definition, Start assumes
// that the definition has all fields, as in config/crd. After the first successful read, Start ignores
// Forbidden errors, because an API server that is starting rejects requests until its RBAC caches are synced.
func (d *definitionCheck) Start(ctx context.Context) error {
	for read := false; ; {
		switch definition, err := crd.Get(ctx, d.reader); {
		case apierrors.IsForbidden(err) && !read:
			d.kept.Store(true)
		case err != nil:
			log.FromContext(ctx).V(1).Info("cannot tell whether the definition of SidecarSets keeps all fields", "cause", err.Error())
		default:
			read = true
			d.kept.Store(crd.KeepsFields(definition))
		}
		interval := d.interval
		if d.kept.Load() {
			interval = d.keptInterval
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// losesFields returns an error while the definition may lack fields, because a write of status may lose these
// fields.
func (d *definitionCheck) losesFields() error {
	if d.kept.Load() {
		return nil
	}
	return errLosesFields
}
