package main

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/enums/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/bench/figures"
	"github.com/outrigger/outrigger/dev/bench/testbed"
	"github.com/outrigger/outrigger/dev/witness"
)

const (
	setName    = "bench"
	imageOld   = "side:v1"
	imageNew   = "side:v2"
	imageEmpty = "side:empty"
)

type bench struct {
	*testbed.Testbed
	pods, window int
	ready        time.Duration
	hot          bool
}

// populate makes the pods of a namespace and waits until they are ready.
func (b *bench) populate(ctx context.Context, namespace string, template corev1.PodTemplateSpec) (*witness.Witness, error) {
	if err := b.CreateNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	w, err := b.watch(ctx, namespace)
	if err != nil {
		return nil, err
	}
	w.Expect(imageOld)
	if b.ready > 0 {
		template.Annotations = map[string]string{"kwok.outrigger.io/ready-after": b.ready.String()}
	}
	if err := b.CreateDeployment(ctx, namespace, namespace, b.pods, template); err != nil {
		return nil, err
	}
	if _, err := w.Await(ctx, witness.Settled(b.pods)); err != nil {
		return nil, fmt.Errorf("wait for the pods: %w", err)
	}
	return w, nil
}

func (b *bench) watch(ctx context.Context, namespace string) (*witness.Witness, error) {
	if b.hot {
		return witness.WatchTwins(ctx, b.Config, namespace, testbed.AppLabel+"="+namespace, testbed.Sidecar, imageEmpty)
	}
	return witness.Watch(ctx, b.Config, namespace, testbed.AppLabel+"="+namespace, testbed.Sidecar)
}

// set is the SidecarSet that is rolled out.
func (b *bench) set() *v1alpha1.SidecarSet {
	window := intstr.FromInt(b.window)
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: setName}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{testbed.AppLabel: setName}}
	container := v1alpha1.SidecarContainer{Container: corev1.Container{Name: testbed.Sidecar, Image: imageOld}}
	if b.hot {
		container.UpgradeStrategy.UpgradeType = v1alpha1.SidecarContainerHotUpgrade
		container.UpgradeStrategy.HotUpgradeEmptyImage = imageEmpty
	}
	set.Spec.Containers = []v1alpha1.SidecarContainer{container}
	set.Spec.UpdateStrategy.MaxUnavailable = &window
	return set
}

// rollout lets Outrigger do it.
func (b *bench) rollout(ctx context.Context, workers int) (*result, error) {
	if err := b.StartRoles(ctx, workers); err != nil {
		return nil, err
	}
	set := b.set()
	if err := b.Kube.Create(ctx, set); err != nil {
		return nil, fmt.Errorf("create the SidecarSet: %w", err)
	}
	w, err := b.populate(ctx, setName, testbed.PodTemplate())
	if err != nil {
		return nil, err
	}
	before, err := figures.Take(ctx, b.Stack)
	if err != nil {
		return nil, err
	}
	w.Expect(imageNew)
	began := time.Now()
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, imageNew)
	if err := b.Kube.Patch(ctx, set, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return nil, fmt.Errorf("change the image: %w", err)
	}
	view, err := w.Await(ctx, witness.Settled(b.pods))
	if err != nil {
		return nil, err
	}
	r := &result{pods: b.pods, window: b.window, took: time.Since(began), restarts: view.AppRestarts}
	after, err := figures.Take(ctx, b.Stack)
	if err != nil {
		return nil, err
	}
	r.processors = after.Since(before).Processor
	r.worst, _ = w.Worst()
	return r, b.account(ctx, set, before, r)
}

// account adds what the rollout cost.
func (b *bench) account(ctx context.Context, set *v1alpha1.SidecarSet, before figures.Sample, r *result) error {
	id := protocol.WorkflowID(set.Name, set.UID)
	var ended protocol.RolloutResult
	if err := b.Temporal.GetWorkflow(ctx, id, "").Get(ctx, &ended); err != nil {
		return fmt.Errorf("wait for the end of the run: %w", err)
	}
	r.batches = ended.Batches
	after, err := figures.Take(ctx, b.Stack)
	if err != nil {
		return err
	}
	spent := after.Since(before)
	r.writes, r.actions.heartbeats = spent.Writes, int(spent.Heartbeats)
	if _, r.memory, err = figures.RoleMemory(b.Stack); err != nil {
		return err
	}
	return b.readHistory(ctx, id, "", r)
}

// readHistory counts the events of a run, and of those that it continued.
func (b *bench) readHistory(ctx context.Context, id, run string, r *result) error {
	continued := ""
	history := b.Temporal.GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return fmt.Errorf("read the history: %w", err)
		}
		r.events++
		r.actions.count(event)
		if event.EventType == enums.EVENT_TYPE_WORKFLOW_TASK_FAILED {
			r.failures++
		}
		if started := event.GetWorkflowExecutionStartedEventAttributes(); started != nil {
			continued = started.ContinuedExecutionRunId
		}
	}
	if continued == "" {
		return nil
	}
	return b.readHistory(ctx, id, continued, r)
}
