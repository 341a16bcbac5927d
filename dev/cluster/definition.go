package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
)

// readableCheck is how often sets are asked for until they can be read.
const readableCheck = 100 * time.Millisecond

// suspendConversion frees a definition that is there from the conversion webhook
// of whoever installed it: a manifest applied over that may be invalid, and sets
// unreadable for as long as nobody answers. The webhook role claims conversion.
func (c *Cluster) suspendConversion(ctx context.Context) error {
	direct, err := c.directClient()
	if err != nil {
		return err
	}
	suspended, err := kube.SuspendConversion(ctx, direct)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !suspended {
		return err
	}
	var cause error
	err = wait.PollUntilContextTimeout(ctx, readableCheck, time.Minute, true, func(ctx context.Context) (bool, error) {
		cause = direct.List(ctx, &v1alpha1.SidecarSetList{})
		return cause == nil, nil
	})
	if err != nil {
		return fmt.Errorf("read SidecarSets without conversion: %w (%w)", err, cause)
	}
	return nil
}

// AwaitEstablished waits until a definition is served. kubectl wait fails while the
// API server has no conditions for it yet.
func (c *Cluster) AwaitEstablished(ctx context.Context, name string) error {
	direct, err := c.directClient()
	if err != nil {
		return err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	err = wait.PollUntilContextTimeout(ctx, readableCheck, time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := direct.Get(ctx, client.ObjectKey{Name: name}, &definition); err != nil {
			return false, err
		}
		return slices.ContainsFunc(definition.Status.Conditions, func(condition apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue
		}), nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s is established: %w", name, err)
	}
	return nil
}

// directClient reads what the API server has, not what a cache remembers.
func (c *Cluster) directClient() (client.Client, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("set up a client: %w", err)
	}
	return direct, nil
}
