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

// definitionCheck prevents writes of SidecarSets by the operator until the definition of SidecarSets keeps
// all fields. If a user has suspended the conversion, the definition may lack fields of one version. The
// webhook role, which may patch the definition, adds these fields.
type definitionCheck struct {
	reader   client.Reader
	interval time.Duration
	kept     atomic.Bool
}

// Start implements manager.Runnable. If the operator has no permission to read the definition,
// Start assumes that the definition keeps all fields, as the shipped definition does.
func (d *definitionCheck) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, d.interval, true, func(ctx context.Context) (bool, error) {
		definition, err := crd.Get(ctx, d.reader)
		if err != nil && !apierrors.IsForbidden(err) {
			log.FromContext(ctx).V(1).Info("cannot tell whether the definition of SidecarSets keeps all fields", "cause", err.Error())
			return false, nil
		}
		d.kept.Store(err != nil || crd.KeepsFields(definition))
		return d.kept.Load(), nil
	}) // PollUntilContextCancel returns an error only when the process ends
	return nil
}

// losesFields returns an error until the definition keeps all fields.
func (d *definitionCheck) losesFields() error {
	if d.kept.Load() {
		return nil
	}
	return errLosesFields
}
