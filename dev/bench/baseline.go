package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/observer"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/revision"
)

// baseline is the result of an upgrade without Outrigger: a simple loop patches the next pod as soon as an
// upgraded pod is ready again.
type baseline struct {
	took time.Duration
	// processor is the CPU time of each process, in seconds.
	processor map[string]float64
}

func (h *harness) measureBaseline(ctx context.Context, name string) (*baseline, error) {
	pods := h.bench.pods
	slots, err := h.slots()
	if err != nil {
		return nil, err
	}
	template, err := h.injected(name)
	if err != nil {
		return nil, err
	}
	if err := h.createNamespace(ctx, name); err != nil {
		return nil, err
	}
	w, err := h.watchPods(ctx, name)
	if err != nil {
		return nil, err
	}
	w.Expect(image(1))
	if err := h.createDeployment(ctx, name, name, pods, template); err != nil {
		return nil, err
	}
	if _, err := w.Await(ctx, observer.Converged(pods)); err != nil {
		return nil, fmt.Errorf("wait for the pods: %w", err)
	}
	var before, after sample
	if err := h.sampleProcesses(&before); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := h.upgradeAll(ctx, w, name, slots); err != nil {
		return nil, err
	}
	took := time.Since(began)
	if err := h.sampleProcesses(&after); err != nil {
		return nil, err
	}
	return &baseline{took: took, processor: after.since(before)[processor]}, h.delete(ctx, "namespace", name)
}

// upgradeAll upgrades all pods of namespace, at most slots pods at a time.
func (h *harness) upgradeAll(ctx context.Context, w *observer.Watch, namespace string, slots int) error {
	var pods corev1.PodList
	if err := h.stack.Kube.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	w.Expect(image(2))
	patching, patchCtx := errgroup.WithContext(ctx)
	for next := 0; next < len(pods.Items); {
		inProgress := func(v observer.View) int { return next - (v.Updated - v.InFlight) }
		view, err := w.Await(patchCtx, func(v observer.View) bool { return inProgress(v) < slots })
		if err != nil {
			return cmp.Or(patching.Wait(), err)
		}
		for free := slots - inProgress(view); free > 0 && next < len(pods.Items); free-- {
			pod := &pods.Items[next]
			next++
			patching.Go(func() error { return h.upgrade(patchCtx, w, pod) })
		}
	}
	if err := patching.Wait(); err != nil {
		return fmt.Errorf("patch a pod: %w", err)
	}
	_, err := w.Await(ctx, observer.Converged(len(pods.Items)))
	return err
}

// upgrade upgrades one pod. A cold upgrade needs one write. A hot upgrade needs a second write, which sets
// the empty image of the standby twin after the other twin is ready.
func (h *harness) upgrade(ctx context.Context, w *observer.Watch, pod *corev1.Pod) error {
	if !h.hot {
		return h.setImage(ctx, pod, sidecar, image(2))
	}
	const active, standby = sidecar + "-2", sidecar + "-1"
	if err := h.setImage(ctx, pod, active, image(2)); err != nil {
		return err
	}
	migrated, err := w.AwaitPod(ctx, pod.UID, func(p *corev1.Pod) bool { return observer.Ready(p) && runsNewImage(p, active) })
	if err != nil {
		return err
	}
	return h.setImage(ctx, migrated, standby, emptyImage)
}

// runsNewImage reports whether a container runs the second version of the image.
func runsNewImage(pod *corev1.Pod, container string) bool {
	for i := range pod.Status.ContainerStatuses {
		if status := &pod.Status.ContainerStatuses[i]; status.Name == container {
			return status.Image == image(2)
		}
	}
	return false
}

func (h *harness) setImage(ctx context.Context, pod *corev1.Pod, container, image string) error {
	patch := fmt.Appendf(nil, `{"spec":{"containers":[{"name":%q,"image":%q}]}}`, container, image)
	return h.stack.Kube.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch))
}

// injected returns the template of a pod with the sidecars that the webhook injects.
func (h *harness) injected(name string) (template corev1.PodTemplateSpec, err error) {
	set := h.newSet(name, "1")
	defaults.Write(set)
	if err := revision.WriteHashes(set); err != nil {
		return template, err
	}
	prepared, err := inject.Prepare(set, name)
	if err != nil {
		return template, err
	}
	bare := h.podTemplate()
	injection, err := inject.Pod(&corev1.Pod{ObjectMeta: bare.ObjectMeta, Spec: bare.Spec}, []*inject.Set{prepared}, metav1.Now())
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

// stopRoles stops the roles, and removes the webhook configurations and the pods.
func (h *harness) stopRoles(ctx context.Context) error {
	for _, role := range h.stack.Roles() {
		if err := h.stack.Stop(role.Name); err != nil {
			return fmt.Errorf("stop %s: %w", role.Name, err)
		}
	}
	// With these configurations, the API server rejects pods and SidecarSets while no webhook runs.
	if err := h.delete(ctx, "mutatingwebhookconfigurations,validatingwebhookconfigurations", "outrigger"); err != nil {
		return err
	}
	return h.delete(ctx, "namespace", namespace)
}

// delete deletes the object called name of each kind, and waits until the objects are gone, so that the pods of
// a deleted namespace do not affect later measurements.
func (h *harness) delete(ctx context.Context, kinds, name string) error {
	_, err := h.stack.Kubectl(ctx, nil, "delete", kinds, name)
	return err
}
