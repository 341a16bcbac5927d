package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.temporal.io/api/enums/v1"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/witness"
	"github.com/outrigger/outrigger/kube"
)

const (
	setName    = "bench"
	sidecar    = "side"
	imageOld   = "side:v1"
	imageNew   = "side:v2"
	imageEmpty = "side:empty"
)

type bench struct {
	stack        *cluster.Cluster
	config       *rest.Config
	kube         client.Client
	temporal     sdk.Client
	pods, window int
	ready        time.Duration
	hot          bool
}

func newBench(stack *cluster.Cluster, o options, window int) (*bench, error) {
	config, err := stack.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the ideal mover is held by nothing
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	b := &bench{stack: stack, config: config, pods: o.pods, window: window, ready: o.ready, hot: o.hot}
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register API types: %w", err)
	}
	if b.kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	b.temporal, err = sdk.NewLazyClient(sdk.Options{
		HostPort: stack.TemporalAddress, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return nil, fmt.Errorf("connect to Temporal: %w", err)
	}
	return b, nil
}

// plain is the template of a pod without sidecars.
func plain() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}}}
}

// populate makes the pods of a namespace and waits until they are ready.
func (b *bench) populate(ctx context.Context, namespace string, template corev1.PodTemplateSpec) (*witness.Witness, error) {
	if err := b.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	w, err := b.watch(ctx, namespace)
	if err != nil {
		return nil, err
	}
	w.Expect(imageOld)
	labels, replicas := map[string]string{"app": namespace}, int32(b.pods)
	template.Labels = labels
	if b.ready > 0 {
		template.Annotations = map[string]string{"kwok.outrigger.io/ready-after": b.ready.String()}
	}
	err = b.kube.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("create deployment: %w", err)
	}
	if _, err := w.Await(ctx, witness.Settled(b.pods)); err != nil {
		return nil, fmt.Errorf("wait for the pods: %w", err)
	}
	return w, nil
}

func (b *bench) watch(ctx context.Context, namespace string) (*witness.Witness, error) {
	if b.hot {
		return witness.WatchTwins(ctx, b.config, namespace, "app="+namespace, sidecar, imageEmpty)
	}
	return witness.Watch(ctx, b.config, namespace, "app="+namespace, sidecar)
}

// set is the SidecarSet that is rolled out.
func (b *bench) set() *v1alpha1.SidecarSet {
	window := intstr.FromInt(b.window)
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: setName}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": setName}}
	container := v1alpha1.SidecarContainer{Container: corev1.Container{Name: sidecar, Image: imageOld}}
	if b.hot {
		container.UpgradeStrategy.UpgradeType = v1alpha1.SidecarContainerHotUpgrade
		container.UpgradeStrategy.HotUpgradeEmptyImage = imageEmpty
	}
	set.Spec.Containers = []v1alpha1.SidecarContainer{container}
	set.Spec.UpdateStrategy.MaxUnavailable = &window
	return set
}

// rollout lets Outrigger do it.
func (b *bench) rollout(ctx context.Context, workers int) (*figures, error) {
	for _, role := range append([]string{cluster.Operator, cluster.Webhook}, workerNames(workers)...) {
		if _, err := b.stack.StartRole(ctx, role); err != nil {
			return nil, err
		}
	}
	set := b.set()
	if err := b.kube.Create(ctx, set); err != nil {
		return nil, fmt.Errorf("create the SidecarSet: %w", err)
	}
	w, err := b.populate(ctx, setName, plain())
	if err != nil {
		return nil, err
	}
	before, err := b.sent(ctx)
	if err != nil {
		return nil, err
	}
	processors, err := b.processorTime()
	if err != nil {
		return nil, err
	}
	w.Expect(imageNew)
	began := time.Now()
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, imageNew)
	if err := b.kube.Patch(ctx, set, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return nil, fmt.Errorf("change the image: %w", err)
	}
	view, err := w.Await(ctx, witness.Settled(b.pods))
	if err != nil {
		return nil, err
	}
	f := &figures{pods: b.pods, window: b.window, took: time.Since(began), restarts: view.AppRestarts}
	after, err := b.processorTime()
	if err != nil {
		return nil, err
	}
	f.processors = since(processors, after)
	f.worst, _ = w.Worst()
	return f, b.account(ctx, set, before, f)
}

func workerNames(n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", cluster.Worker, i+1))
	}
	return names
}

// account adds what the rollout cost.
func (b *bench) account(ctx context.Context, set *v1alpha1.SidecarSet, before sent, f *figures) error {
	id := protocol.WorkflowID(set.Name, set.UID)
	var result protocol.RolloutResult
	if err := b.temporal.GetWorkflow(ctx, id, "").Get(ctx, &result); err != nil {
		return fmt.Errorf("wait for the end of the run: %w", err)
	}
	f.batches = result.Batches
	after, err := b.sent(ctx)
	if err != nil {
		return err
	}
	f.writes = map[string]float64{}
	for role, n := range after.writes {
		f.writes[role] = n - before.writes[role]
	}
	f.actions.heartbeats = int(after.heartbeats - before.heartbeats)
	if f.memory, err = b.memory(); err != nil {
		return err
	}
	return b.readHistory(ctx, id, "", f)
}

// readHistory counts the events of a run, and of those that it continued.
func (b *bench) readHistory(ctx context.Context, id, run string, f *figures) error {
	continued := ""
	history := b.temporal.GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return fmt.Errorf("read the history: %w", err)
		}
		f.events++
		f.actions.count(event)
		if event.EventType == enums.EVENT_TYPE_WORKFLOW_TASK_FAILED {
			f.failures++
		}
		if started := event.GetWorkflowExecutionStartedEventAttributes(); started != nil {
			continued = started.ContinuedExecutionRunId
		}
	}
	if continued == "" {
		return nil
	}
	return b.readHistory(ctx, id, continued, f)
}
