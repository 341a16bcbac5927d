package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/chaos/link"
	"github.com/outrigger/outrigger/dev/chaos/observer"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
)

const namespace = "chaos"

// world is an installation, and what disturbs it.
type world struct {
	*cluster.Cluster
	dir      string
	kube     client.WithWatch
	temporal sdk.Client
	observer *observer.Observer
	// links lead from each role to the API server and to Temporal.
	links     map[string]*link.Link
	apiServer string
	throttle  *throttle
	// replicas is how many pods a deployment has in the beginning.
	replicas int32
	out      io.Writer

	mu      sync.Mutex
	began   time.Time
	current map[int]Fault
}

// setNames and deploymentNames are what faults are aimed at.
func setNames() []string        { return []string{"a", "b", "c", "d", "e"} }
func deploymentNames() []string { return []string{"api", "batch", "jobs", "web"} }

// carries says which sets select the pods of a deployment: each pod has several.
func carries(deployment string) []string {
	return map[string][]string{
		"web": {"a", "c", "e"}, "api": {"a", "b", "e"}, "batch": {"b", "d", "e"}, "jobs": {"c", "d"},
	}[deployment]
}

// newSet is a set as it is in the beginning, and after it was made again.
func newSet(name, image string) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"set-" + name: "on"}}
	container := v1alpha1.SidecarContainer{Container: corev1.Container{Name: "side-" + name, Image: "side-" + name + ":" + image}}
	if name == "c" || name == "d" {
		container.UpgradeStrategy.UpgradeType = v1alpha1.SidecarContainerHotUpgrade
		container.UpgradeStrategy.HotUpgradeEmptyImage = "side-" + name + ":empty"
	}
	set.Spec.Containers = []v1alpha1.SidecarContainer{container}
	window := map[string]intstr.IntOrString{
		"a": intstr.FromString("10%"), "b": intstr.FromInt32(4), "c": intstr.FromInt32(8), "d": intstr.FromString("10%"), "e": intstr.FromInt32(12),
	}[name]
	set.Spec.UpdateStrategy.MaxUnavailable = &window
	return set
}

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	template := map[string]string{"app": name}
	for _, set := range carries(name) {
		template["set-"+set] = "on"
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: template},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
			},
		},
	}
}

// newWorld starts all but the roles, for about so many pods. Close ends it.
func newWorld(ctx context.Context, dir string, pods int, out io.Writer, report func(observer.Violation)) (*world, error) {
	stack, err := cluster.Start(ctx, cluster.Options{Dir: filepath.Join(dir, "stack")})
	if err != nil {
		return nil, err
	}
	w := &world{Cluster: stack, dir: dir, links: map[string]*link.Link{}, current: map[int]Fault{}, out: out, began: time.Now()}
	w.replicas = int32(pods / len(deploymentNames()))
	if err := w.connect(ctx); err != nil {
		w.close()
		return nil, err
	}
	w.observer = observer.New(w.kube, report)
	return w, nil
}

func (w *world) close() {
	for _, l := range w.links {
		l.Close()
	}
	if w.temporal != nil {
		w.temporal.Close()
	}
	if w.throttle != nil {
		_ = w.throttle.server.Close()
	}
	w.Shutdown()
}

// watch observes, and starts again what ends by itself, until stop.
func (w *world) watch(ctx context.Context) (stop func()) {
	watching, stop := context.WithCancel(ctx)
	go w.observer.Run(watching)
	go w.supervise(watching)
	return stop
}

// populate starts the roles, and makes sets and pods.
func (w *world) populate(ctx context.Context, sets []string) error {
	for _, role := range []string{cluster.Operator, cluster.Webhook, "worker-1", "worker-2"} {
		if err := w.startRole(ctx, role); err != nil {
			return err
		}
	}
	return w.makePods(ctx, sets)
}

func (w *world) makePods(ctx context.Context, sets []string) error {
	if err := w.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	for _, name := range sets {
		if err := w.kube.Create(ctx, newSet(name, "v1")); err != nil {
			return fmt.Errorf("create SidecarSet %s: %w", name, err)
		}
	}
	for _, name := range deploymentNames() {
		if err := w.kube.Create(ctx, newDeployment(name, w.replicas)); err != nil {
			return fmt.Errorf("create Deployment %s: %w", name, err)
		}
	}
	return nil
}

func (w *world) connect(ctx context.Context) error {
	config, err := w.RESTConfig()
	if err != nil {
		return err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	config.Timeout = 0
	if w.kube, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	parsed, err := url.Parse(config.Host)
	if err != nil {
		return fmt.Errorf("address of the API server: %w", err)
	}
	w.apiServer = parsed.Host
	if w.throttle, err = newThrottle(ctx, w.apiServer, filepath.Dir(w.RoleKubeconfig(cluster.Worker))); err != nil {
		return err
	}
	w.temporal, err = sdk.NewLazyClient(sdk.Options{
		HostPort: w.TemporalAddress, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	return nil
}

// startRole runs a role that reaches the others by links.
func (w *world) startRole(ctx context.Context, role string) error {
	toAPIServer, err := w.open(ctx, role+"/apiserver", w.apiServer)
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(w.RoleKubeconfig(role))
	if err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", role, err)
	}
	for _, one := range config.Clusters {
		one.Server = "https://" + toAPIServer
	}
	file := filepath.Join(w.dir, role+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", role, err)
	}
	args := []string{"--kubeconfig=" + file}
	if role != cluster.Webhook {
		toTemporal, err := w.open(ctx, role+"/temporal", w.TemporalAddress)
		if err != nil {
			return err
		}
		args = append(args, "--temporal-address="+toTemporal)
	}
	_, err = w.StartRole(ctx, role, args...)
	return err
}

func (w *world) open(ctx context.Context, name, upstream string) (address string, err error) {
	l, err := link.Open(ctx, upstream)
	if err != nil {
		return "", err
	}
	w.links[name] = l
	return l.Address(), nil
}

// say prints a line with the time since the beginning.
func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintf(w.out, "%7.1fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// inCourse lists the faults that last.
func (w *world) inCourse() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, f := range w.current {
		all = append(all, f.String())
	}
	slices.Sort(all)
	return strings.Join(all, "\n    ")
}

// choose picks some pods that carry a label, as the fault's own draw says. Which
// pods there are is up to the cluster.
func (w *world) choose(ctx context.Context, f Fault, labels client.MatchingLabels) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := w.kube.List(ctx, list, client.InNamespace(namespace), labels); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(f.Draw, 1))
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	random.Shuffle(len(list.Items), func(i, j int) { list.Items[i], list.Items[j] = list.Items[j], list.Items[i] })
	return list.Items[:min(f.Pods, len(list.Items))], nil
}
