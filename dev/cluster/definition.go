package cluster

import (
	"context"
	"fmt"
	"time"

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
	config, err := c.RESTConfig()
	if err != nil {
		return err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("set up a client: %w", err)
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
