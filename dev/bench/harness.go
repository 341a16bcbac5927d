package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

const (
	// namespace is the namespace of the pods of all SidecarSets.
	namespace = "bench"
	// appLabel is the pod label whose value is the name of the Deployment and of the SidecarSet.
	appLabel   = "app"
	sidecar    = "side"
	emptyImage = sidecar + ":empty"
	// parallel is the maximum number of requests in flight.
	parallel    = 8
	podsPerNode = 1000
)

// harness is a cluster for one round. The cluster contains SidecarSets, and a Deployment with the same name
// for each SidecarSet.
type harness struct {
	*bench
	stack   *cluster.Cluster
	dir     string
	started time.Time

	lines report
	// sets contains the SidecarSets that roll out. pods is the number of pods of these SidecarSets. took is
	// the duration of the rollout.
	sets    []*v1alpha1.SidecarSet
	pods    int
	took    time.Duration
	watched *observer.Watch
	// cached reads SidecarSets from a cache that a watch updates.
	cached client.Reader
	// failed counts the failed requests for SidecarSets.
	failed atomic.Int64
}

// startHarness starts a cluster with enough nodes for the pods, without the roles of Outrigger.
func startHarness(ctx context.Context, b *bench) (*harness, error) {
	dir, err := cluster.TempDir("outrigger-bench-")
	if err != nil {
		return nil, err
	}
	h := &harness{bench: b, dir: dir, started: time.Now()}
	options := cluster.Options{Dir: filepath.Join(dir, "stack"), Nodes: b.pods/podsPerNode + 1}
	if h.stack, err = cluster.Start(ctx, options); err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

// close stops the cluster and removes its state.
func (h *harness) close() {
	if h.stack != nil {
		h.stack.Shutdown()
	}
	_ = os.RemoveAll(h.dir) // An error is ignored, because the directory is not used afterwards.
}

// startRoles starts the roles, and watches the pods and SidecarSets until ctx ends.
func (h *harness) startRoles(ctx context.Context) (err error) {
	for _, role := range []string{cluster.Operator, cluster.Webhook} {
		if _, err := h.stack.StartRole(ctx, role); err != nil {
			return err
		}
	}
	for i := range h.workers {
		_, err := h.stack.StartRole(ctx, fmt.Sprintf("%s-%d", cluster.Worker, i+1), fmt.Sprintf("--max-unavailable-pods=%d", h.maxUnavailablePods))
		if err != nil {
			return err
		}
	}
	if err := h.createNamespace(ctx, namespace); err != nil {
		return err
	}
	watched := namespace
	if h.perNamespace {
		watched = corev1.NamespaceAll
	}
	if h.cached, err = h.watchSets(ctx); err != nil {
		return err
	}
	h.watched, err = h.watchPods(ctx, watched)
	return err
}

func (h *harness) watchPods(ctx context.Context, namespace string) (*observer.Watch, error) {
	config, err := h.stack.RESTConfig()
	if err != nil {
		return nil, err
	}
	empty := ""
	if h.hot {
		empty = emptyImage
	}
	return observer.WatchPods(ctx, config, namespace, appLabel, sidecar, empty)
}

func (h *harness) progress(what string) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(h.started).Seconds(), what)
}

func image(version int) string { return fmt.Sprintf("%s:v%d", sidecar, version) }

// newSet returns a SidecarSet that selects the pods of the Deployment with the same name.
func (h *harness) newSet(name, maxUnavailable string) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if h.perNamespace {
		set.Spec.Namespace = name
	}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: name}}
	container := v1alpha1.SidecarContainer{Container: corev1.Container{Name: sidecar, Image: image(1)}}
	if h.hot {
		container.UpgradeStrategy.UpgradeType = v1alpha1.SidecarContainerHotUpgrade
		container.UpgradeStrategy.HotUpgradeEmptyImage = emptyImage
	}
	set.Spec.Containers = []v1alpha1.SidecarContainer{container}
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.Parse(maxUnavailable))
	return set
}

// newSets returns SidecarSets named prefix-1 to prefix-n.
func (h *harness) newSets(prefix string, n int, maxUnavailable string) []*v1alpha1.SidecarSet {
	sets := make([]*v1alpha1.SidecarSet, 0, n)
	for i := range n {
		sets = append(sets, h.newSet(fmt.Sprintf("%s-%d", prefix, i+1), maxUnavailable))
	}
	return sets
}

// podTemplate returns the template of a pod without sidecars.
func (h *harness) podTemplate() corev1.PodTemplateSpec {
	var template corev1.PodTemplateSpec
	template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
	if h.ready > 0 {
		template.Annotations = map[string]string{"kwok.outrigger.io/ready-after": h.ready.String()}
	}
	return template
}

func (h *harness) createNamespace(ctx context.Context, name string) error {
	if err := h.stack.Kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

// createDeployment creates a Deployment. The label appLabel of the pods is the name of the Deployment.
func (h *harness) createDeployment(ctx context.Context, namespace, name string, pods int, template corev1.PodTemplateSpec) error {
	labels, replicas := map[string]string{appLabel: name}, int32(pods)
	template.Labels = labels
	err := h.stack.Kube.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
		},
	})
	if err != nil {
		return fmt.Errorf("create deployment %s/%s: %w", namespace, name, err)
	}
	return nil
}

// eachSet calls send for each SidecarSet, with at most parallel calls at a time. If the API server answers
// with a status of 500 or higher, for example because the machine is overloaded, eachSet counts the failure
// and retries, with at most five attempts.
func (h *harness) eachSet(ctx context.Context, sets []*v1alpha1.SidecarSet, send func(context.Context, *v1alpha1.SidecarSet) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for _, set := range sets {
		all.Go(func() error {
			err := retry.OnError(wait.Backoff{Duration: time.Second, Factor: 2, Steps: 5}, h.countFailed, func() error { return send(ctx, set) })
			if err != nil {
				return fmt.Errorf("SidecarSet %s: %w", set.Name, err)
			}
			return nil
		})
	}
	return all.Wait()
}

func (h *harness) countFailed(err error) bool {
	var status apierrors.APIStatus
	failed := errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
	if failed {
		h.failed.Add(1)
	}
	return failed
}

// createPods creates the pods, and returns once the pods are ready and all runs have ended.
func (h *harness) createPods(ctx context.Context) error {
	podsEach := h.bench.pods / len(h.sets)
	h.pods = len(h.sets) * podsEach
	h.watched.Expect(image(1))
	if h.perNamespace {
		err := h.eachSet(ctx, h.sets, func(ctx context.Context, set *v1alpha1.SidecarSet) error { return h.createNamespace(ctx, set.Name) })
		if err != nil {
			return err
		}
	}
	err := h.eachSet(ctx, h.sets, func(ctx context.Context, set *v1alpha1.SidecarSet) error {
		return h.createDeployment(ctx, cmp.Or(set.Spec.Namespace, namespace), set.Name, podsEach, h.podTemplate())
	})
	if err != nil {
		return err
	}
	if _, err := h.watched.Await(ctx, observer.Converged(h.pods)); err != nil {
		return fmt.Errorf("wait for the pods: %w", err)
	}
	h.progress("pods are ready")
	return h.awaitEnd(ctx)
}

// changeImage begins a rollout of all SidecarSets.
func (h *harness) changeImage(ctx context.Context) error {
	h.watched.Expect(image(2))
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, image(2))
	return h.eachSet(ctx, h.sets, func(ctx context.Context, set *v1alpha1.SidecarSet) error {
		return h.stack.Kube.Patch(ctx, set, client.RawPatch(types.JSONPatchType, patch))
	})
}
