package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/test/witness"
)

// ideal moves pods with the same window and nothing else to do: whenever a pod
// is ready again, the next one is patched.
func (b *bench) ideal(ctx context.Context) (time.Duration, error) {
	const name = "ideal"
	w, err := b.populate(ctx, name, corev1.Container{Name: sidecar, Image: imageOld})
	if err != nil {
		return 0, err
	}
	var pods corev1.PodList
	if err := b.kube.List(ctx, &pods, kube.InNamespace(name)); err != nil {
		return 0, fmt.Errorf("list pods: %w", err)
	}
	w.Expect(imageNew)
	began := time.Now()
	patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":%q,"image":%q}]}}`, sidecar, imageNew)
	patching, patchCtx := errgroup.WithContext(ctx)
	for moved := 0; moved < len(pods.Items); {
		view, err := w.Await(ctx, func(v witness.View) bool { return moved-(v.Updated-v.InFlight) < b.window })
		if err != nil {
			return 0, err
		}
		for free := b.window - (moved - (view.Updated - view.InFlight)); free > 0 && moved < len(pods.Items); free-- {
			pod := &pods.Items[moved]
			moved++
			patching.Go(func() error {
				return b.kube.Patch(patchCtx, pod, kube.RawPatch(types.StrategicMergePatchType, patch))
			})
		}
	}
	if err := patching.Wait(); err != nil {
		return 0, fmt.Errorf("patch a pod: %w", err)
	}
	if _, err := w.Await(ctx, witness.Settled(b.pods)); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, b.clear(ctx, name)
}

// clear removes the pods, so that the rollout has the machine for itself.
func (b *bench) clear(ctx context.Context, namespace string) error {
	gone, err := witness.Watch(ctx, b.config, namespace, "", sidecar)
	if err != nil {
		return err
	}
	object := &corev1.Namespace{}
	object.Name = namespace
	if err := b.kube.Delete(ctx, object); err != nil {
		return fmt.Errorf("delete namespace: %w", err)
	}
	_, err = gone.Await(ctx, func(v witness.View) bool { return v.Pods == 0 })
	return err
}
