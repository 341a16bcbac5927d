package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/link"
	"github.com/outrigger/outrigger/dev/observer"
)

const namespace = "chaos"

// fixture is an installation, and the links and proxies through which chaos injects faults.
type fixture struct {
	*cluster.Cluster
	// name is the name of the cluster in a fleet.
	name     string
	dir      string
	observer *observer.Observer
	// links connect each role to the API server and to Temporal.
	links     map[string]*link.Link
	apiServer string
	// throttle is the address of an API server that answers most requests with 429.
	throttle string
	// replicas is the initial number of pods of a deployment.
	replicas int32
	out      io.Writer

	mu      sync.Mutex
	began   time.Time
	current map[int]Fault
}

// setNames and deploymentNames return the targets of faults.
func setNames() []string        { return []string{"a", "b", "c", "d", "e"} }
func deploymentNames() []string { return []string{"api", "batch", "jobs", "web"} }

// carries returns the SidecarSets that select the pods of a Deployment.
func carries(deployment string) []string {
	return map[string][]string{
		"web": {"a", "c", "e"}, "api": {"a", "b", "e"}, "batch": {"b", "d", "e"}, "jobs": {"c", "d"},
	}[deployment]
}

// newSet returns a SidecarSet in its initial state.
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

// newFixture starts a cluster in dir, without roles. Only clusters of a fleet have a name.
func newFixture(ctx context.Context, options cluster.Options, name, dir string, out io.Writer, report func(observer.Violation)) (*fixture, error) {
	options.Dir = filepath.Join(dir, "stack")
	c, err := cluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	w := &fixture{
		Cluster: c, name: name, dir: dir, observer: observer.New(report), links: map[string]*link.Link{}, current: map[int]Fault{}, out: out, began: time.Now(),
	}
	config, err := c.RESTConfig()
	if err != nil {
		w.close()
		return nil, err
	}
	w.apiServer = strings.TrimPrefix(config.Host, "https://")
	return w, nil
}

func (w *fixture) close() {
	for _, l := range w.links {
		l.Close()
	}
	w.Shutdown()
}

// watch starts the observer, and restarts roles that exit without a fault, until stop is called.
func (w *fixture) watch(ctx context.Context) (stop func()) {
	watching, stop := context.WithCancel(ctx)
	go w.observer.Run(watching, w.EtcdURL())
	go w.supervise(watching)
	go w.watchDelays(watching)
	return stop
}

// populate creates SidecarSets, and Deployments of replicas pods each, and waits until the pods converge.
func (w *fixture) populate(ctx context.Context, sets, deployments []string, replicas int32) error {
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}}
	for _, name := range sets {
		objects = append(objects, newSet(name, "v1"))
	}
	for _, name := range deployments {
		objects = append(objects, newDeployment(name, replicas))
	}
	for _, object := range objects {
		if err := w.Kube.Create(ctx, object); err != nil {
			return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
		}
	}
	return w.converge(ctx, int(replicas)*len(deployments))
}

// startRole starts a role that reaches the API server and Temporal through links.
func (w *fixture) startRole(ctx context.Context, role string, args ...string) error {
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
	args = append(args, "--kubeconfig="+file)
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

func (w *fixture) open(ctx context.Context, name, upstream string) (address string, err error) {
	l, err := link.Open(ctx, "127.0.0.1:0", upstream)
	if err != nil {
		return "", err
	}
	w.links[name] = l
	return l.Address(), nil
}

// command runs a program in bin/ against the Temporal server of the cluster.
func (w *fixture) command(ctx context.Context, stdin, program string, args ...string) (string, error) {
	args = append(args, "--temporal-address="+w.TemporalAddress, "--temporal-namespace="+cluster.TemporalNamespace)
	cmd := exec.CommandContext(ctx, filepath.Join("bin", program), args...)
	cmd.Stdin, cmd.Env = strings.NewReader(stdin), append(os.Environ(), cluster.TemporalEnv()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// say prints a line with the time since the first fault.
func (w *fixture) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintf(w.out, "%7.1fs  %s\n", time.Since(w.began).Seconds(), strings.TrimSpace(w.name+" "+fmt.Sprintf(format, args...)))
}

// inCourse returns a text that lists the faults in progress.
func (w *fixture) inCourse() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for _, f := range w.current {
		all = append(all, f.String())
	}
	slices.Sort(all)
	return strings.Join(all, "\n    ")
}

// choose selects the pods of a fault among the pods with labels. f contains the number or the share of the
// selected pods. If both are 0, choose returns all pods. f.Draw is the seed of the random choice.
func (w *fixture) choose(ctx context.Context, f Fault, labels client.MatchingLabels) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	if err := w.Kube.List(ctx, list, client.InNamespace(namespace), labels); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(f.Draw, 1))
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	random.Shuffle(len(list.Items), func(i, j int) { list.Items[i], list.Items[j] = list.Items[j], list.Items[i] })
	n := len(list.Items)
	switch {
	case f.Pods > 0:
		n = min(n, f.Pods)
	case f.Share > 0:
		n = n * f.Share / 100
	}
	return list.Items[:n], nil
}

// eachPod calls act for each pod of a fault. If a call fails, eachPod retries for all pods of the fault.
func (w *fixture) eachPod(ctx context.Context, f Fault, labels client.MatchingLabels, act func(context.Context, *corev1.Pod) error) error {
	return w.insist(ctx, func(ctx context.Context) error {
		chosen, err := w.choose(ctx, f, labels)
		for i := range chosen {
			err = errors.Join(err, client.IgnoreNotFound(act(ctx, &chosen[i])))
		}
		return err
	})
}

// merging returns an action that applies a merge patch to a pod.
func (w *fixture) merging(format string, args ...any) func(context.Context, *corev1.Pod) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
	return func(ctx context.Context, pod *corev1.Pod) error { return w.Kube.Patch(ctx, pod, patch) }
}

func (w *fixture) deletePod(ctx context.Context, pod *corev1.Pod) error {
	return w.Kube.Delete(ctx, pod)
}
