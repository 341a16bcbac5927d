package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/observer"
)

// notReady is a status patch that makes a pod not ready. The simulated kubelet makes the pod ready again.
const notReady = `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`

// eventsOfPatch is the number of watch events after one patch, because the pod becomes not ready and then ready
// again.
const eventsOfPatch = 2

// eventStride is the distance in the list between two consecutively patched pods, so that consecutive events
// concern different SidecarSets. eventStride is a prime number, so that makeEvents patches every pod before the
// order repeats, unless the number of pods is a multiple of eventStride.
const eventStride = 7919

// makeEvents makes pods not ready for the given duration, so that the watches of pods receive the configured
// number of events per second. makeEvents then waits until the watch shows that all pods are ready.
func (h *harness) makeEvents(ctx context.Context, duration time.Duration) error {
	var pods corev1.PodList
	if err := h.stack.Kube.List(ctx, &pods, client.HasLabels{appLabel}); err != nil {
		return fmt.Errorf("list the pods: %w", err)
	}
	ticker := time.NewTicker(eventsOfPatch * time.Second / time.Duration(h.events))
	defer ticker.Stop()
	patches, patching := errgroup.WithContext(ctx)
	patches.SetLimit(parallel)
	patch := client.RawPatch(types.StrategicMergePatchType, []byte(notReady))
	for i := range int(duration.Seconds()) * h.events / eventsOfPatch {
		select {
		case <-ticker.C:
		case <-patching.Done():
			return patches.Wait()
		}
		pod := &pods.Items[i*eventStride%len(pods.Items)]
		patches.Go(func() error { return h.stack.Kube.Status().Patch(patching, pod, patch) })
	}
	if err := patches.Wait(); err != nil {
		return fmt.Errorf("make a pod not ready: %w", err)
	}
	if _, err := h.watched.Await(ctx, observer.Converged(h.pods)); err != nil {
		return fmt.Errorf("wait until the pods are ready again: %w", err)
	}
	return nil
}
