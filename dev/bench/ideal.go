package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/bench/figures"
	"github.com/outrigger/outrigger/dev/bench/testbed"
	"github.com/outrigger/outrigger/dev/witness"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/validation"
)

// idealMove is what the ideal mover took.
type idealMove struct {
	took time.Duration
	// processors is the processor time of each process, in seconds.
	processors map[string]float64
}

// ideal moves the same pods with the same window and nothing else to do:
// whenever a pod is ready again, the next one is patched.
func (b *bench) ideal(ctx context.Context, name string) (*idealMove, error) {
	template, err := b.injected()
	if err != nil {
		return nil, err
	}
	w, err := b.populate(ctx, name, template)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := b.Kube.List(ctx, &pods, client.InNamespace(name)); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	processors, err := figures.ProcessorSeconds(b.Stack)
	if err != nil {
		return nil, err
	}
	w.Expect(imageNew)
	began := time.Now()
	if err := b.moveAll(ctx, w, pods.Items); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := figures.ProcessorSeconds(b.Stack)
	if err != nil {
		return nil, err
	}
	return &idealMove{took: took, processors: figures.Difference(processors, after)}, b.clear(ctx, name)
}

func (b *bench) moveAll(ctx context.Context, w *witness.Witness, pods []corev1.Pod) error {
	patching, patchCtx := errgroup.WithContext(ctx)
	for moved := 0; moved < len(pods); {
		view, err := w.Await(ctx, func(v witness.View) bool { return moved-(v.Updated-v.InFlight) < b.window })
		if err != nil {
			return err
		}
		for free := b.window - (moved - (view.Updated - view.InFlight)); free > 0 && moved < len(pods); free-- {
			pod := &pods[moved]
			moved++
			patching.Go(func() error { return b.move(patchCtx, w, pod) })
		}
	}
	if err := patching.Wait(); err != nil {
		return fmt.Errorf("patch a pod: %w", err)
	}
	_, err := w.Await(ctx, witness.Settled(b.pods))
	return err
}

// injected is the template of a pod that has its sidecars already, as the
// webhook would have made it.
func (b *bench) injected() (template corev1.PodTemplateSpec, err error) {
	set := b.set()
	validation.Default(set)
	if err := validation.WriteHashes(set); err != nil {
		return template, err
	}
	prepared, err := inject.Prepare(set, setName)
	if err != nil {
		return template, err
	}
	bare := testbed.PodTemplate()
	injection, err := inject.Pod(&corev1.Pod{Spec: bare.Spec}, []*inject.Set{prepared}, metav1.Now())
	if err != nil {
		return template, err
	}
	encoded, err := json.Marshal(injection.Patch())
	if err != nil {
		return template, fmt.Errorf("encode the patch of a pod: %w", err)
	}
	patch, err := jsonpatch.DecodePatch(encoded)
	if err != nil {
		return template, fmt.Errorf("read the patch of a pod: %w", err)
	}
	document, err := json.Marshal(bare)
	if err != nil {
		return template, fmt.Errorf("encode a pod: %w", err)
	}
	if document, err = patch.Apply(document); err != nil {
		return template, fmt.Errorf("inject into a pod: %w", err)
	}
	return template, json.Unmarshal(document, &template)
}

// move upgrades one pod: with one write, or with a second one that empties the
// standby twin once the other runs.
func (b *bench) move(ctx context.Context, w *witness.Witness, pod *corev1.Pod) error {
	if !b.hot {
		return b.setImage(ctx, pod, testbed.Sidecar, imageNew)
	}
	if err := b.setImage(ctx, pod, testbed.Sidecar+"-2", imageNew); err != nil {
		return err
	}
	migrated, err := w.AwaitPod(ctx, pod.UID, func(p *corev1.Pod) bool { return witness.Ready(p) && runs(p, testbed.Sidecar+"-2", imageNew) })
	if err != nil {
		return err
	}
	return b.setImage(ctx, migrated, testbed.Sidecar+"-1", imageEmpty)
}

func (b *bench) setImage(ctx context.Context, pod *corev1.Pod, container, image string) error {
	patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":%q,"image":%q}]}}`, container, image)
	return b.Kube.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
}

func runs(pod *corev1.Pod, container, image string) bool {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == container {
			return status.Image == image
		}
	}
	return false
}

// clear removes the pods, so that what follows has the machine for itself.
func (b *bench) clear(ctx context.Context, namespace string) error {
	gone, err := witness.Watch(ctx, b.Config, namespace, "", testbed.Sidecar)
	if err != nil {
		return err
	}
	object := &corev1.Namespace{}
	object.Name = namespace
	if err := b.Kube.Delete(ctx, object); err != nil {
		return fmt.Errorf("delete namespace: %w", err)
	}
	_, err = gone.Await(ctx, func(v witness.View) bool { return v.Pods == 0 })
	return err
}

// leave stops the roles and what refuses pods without them.
func (b *bench) leave(ctx context.Context) error {
	for _, role := range b.Stack.Roles() {
		if err := b.Stack.Stop(role.Name); err != nil {
			return fmt.Errorf("stop %s: %w", role.Name, err)
		}
	}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	configuration.Name = "outrigger"
	if err := b.Kube.Delete(ctx, configuration); err != nil {
		return fmt.Errorf("delete the webhook configuration: %w", err)
	}
	return b.clear(ctx, setName)
}
