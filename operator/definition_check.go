package operator

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/kube/crd"
)

// definitionInterval is the time between two reads of a definition that loses fields.
const definitionInterval = time.Second

var errLosesFields = errors.New("the CustomResourceDefinition of SidecarSets may lack fields of one version, which a write of status would lose")

// definitionCheck keeps the operator from writing SidecarSets until their definition keeps all
// fields. The conversion may have been suspended by hand; the webhook role, which may patch
// the definition, then adds the fields that it lacks.
type definitionCheck struct {
	reader   client.Reader
	interval time.Duration
	kept     atomic.Bool
}

// Start implements manager.Runnable. A definition that the operator may not read is taken for
// one that keeps all fields, as the shipped one is.
func (d *definitionCheck) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, d.interval, true, func(ctx context.Context) (bool, error) {
		definition, err := crd.Get(ctx, d.reader)
		if err != nil && !apierrors.IsForbidden(err) {
			log.FromContext(ctx).V(1).Info("cannot tell whether the definition of SidecarSets keeps all fields", "cause", err.Error())
			return false, nil
		}
		d.kept.Store(err != nil || crd.KeepsFields(definition))
		return d.kept.Load(), nil
	}) // it ends early with the process alone
	return nil
}

// losesFields returns an error until the definition keeps all fields.
func (d *definitionCheck) losesFields() error {
	if d.kept.Load() {
		return nil
	}
	return errLosesFields
}
