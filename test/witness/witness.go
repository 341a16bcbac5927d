// Package witness watches pods from outside, knowing nothing of how they are
// upgraded, and remembers the worst that it saw.
package witness

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Witness counts, at every event, the pods whose sidecar is being replaced.
type Witness struct {
	// names of the sidecar's containers: one, or two twins of which one holds
	// the image empty.
	names []string
	empty string

	mu     sync.Mutex
	image  string
	pods   map[types.UID]*corev1.Pod
	total  View
	worst  int
	when   string
	change chan struct{}
}

// View is what the witness sees at one moment.
type View struct {
	Pods int
	// Ready pods have the condition Ready.
	Ready int
	// Updated pods were asked to run the image; those in flight do not yet, or
	// are not ready; the others are settled.
	Updated, InFlight int
	// AppRestarts counts restarts of containers other than the sidecar.
	AppRestarts int32
	// SidecarRestarts counts those of the sidecar.
	SidecarRestarts int32
}

// Watch follows the pods of a namespace that carry the labels, until ctx ends,
// and looks at one container of each.
func Watch(ctx context.Context, config *rest.Config, namespace, selector, container string) (*Witness, error) {
	return watch(ctx, config, namespace, selector, &Witness{names: []string{container}})
}

// WatchTwins is Watch for a hot sidecar: one of its twins holds the image
// empty unless it is being upgraded.
func WatchTwins(ctx context.Context, config *rest.Config, namespace, selector, container, empty string) (*Witness, error) {
	return watch(ctx, config, namespace, selector, &Witness{names: []string{container + "-1", container + "-2"}, empty: empty})
}

func watch(ctx context.Context, config *rest.Config, namespace, selector string, w *Witness) (*Witness, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect the witness: %w", err)
	}
	w.pods, w.change = map[types.UID]*corev1.Pod{}, make(chan struct{})
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
	informer := factory.Core().V1().Pods().Informer()
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.see,
		UpdateFunc: func(_, pod any) { w.see(pod) },
		DeleteFunc: w.lose,
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		return nil, fmt.Errorf("watch pods: %w", context.Cause(ctx))
	}
	return w, nil
}

// Expect names the image that the sidecar is to run from now on, and forgets
// the worst so far.
func (w *Witness) Expect(image string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.image, w.worst, w.when = image, 0, ""
	w.total = View{}
	for _, pod := range w.pods {
		w.count(pod, 1)
	}
	w.judge("expectation")
}

// Worst is the largest number of pods ever in flight at once, and at which event.
func (w *Witness) Worst() (inFlight int, event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.worst, w.when
}

// View is what the witness sees now.
func (w *Witness) View() View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// Await waits until what is seen fulfils the condition.
func (w *Witness) Await(ctx context.Context, condition func(View) bool) (View, error) {
	for {
		w.mu.Lock()
		view, change := w.total, w.change
		w.mu.Unlock()
		if condition(view) {
			return view, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return view, fmt.Errorf("pods stayed at %+v: %w", view, context.Cause(ctx))
		}
	}
}

// AwaitPod waits until one pod fulfils the condition.
func (w *Witness) AwaitPod(ctx context.Context, uid types.UID, condition func(*corev1.Pod) bool) (*corev1.Pod, error) {
	for {
		w.mu.Lock()
		pod, change := w.pods[uid], w.change
		w.mu.Unlock()
		if pod != nil && condition(pod) {
			return pod, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil, fmt.Errorf("pod %s: %w", uid, context.Cause(ctx))
		}
	}
}

// Settled is the condition that all n pods run the image and are ready.
func Settled(n int) func(View) bool {
	return func(v View) bool { return v.Pods == n && v.Updated == n && v.InFlight == 0 && v.Ready == n }
}

func (w *Witness) see(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replace(pod.UID, pod)
	w.judge(pod.Name + " at " + pod.ResourceVersion)
}

func (w *Witness) lose(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replace(pod.UID, nil)
	w.judge(pod.Name + " gone")
}

// replace puts what is known of a pod in the place of what was. Pods that are
// being deleted no longer count.
func (w *Witness) replace(uid types.UID, pod *corev1.Pod) {
	if before, ok := w.pods[uid]; ok {
		w.count(before, -1)
		delete(w.pods, uid)
	}
	if pod != nil && pod.DeletionTimestamp == nil {
		w.pods[uid] = pod
		w.count(pod, 1)
	}
}

func (w *Witness) judge(event string) {
	if w.total.InFlight > w.worst {
		w.worst, w.when = w.total.InFlight, event
	}
	close(w.change)
	w.change = make(chan struct{})
}

// count adds a pod to the total, or with sign -1 takes it out.
func (w *Witness) count(pod *corev1.Pod, sign int) {
	w.total.Pods += sign
	ready := Ready(pod)
	if ready {
		w.total.Ready += sign
	}
	runs := map[string]string{}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if slices.Contains(w.names, status.Name) {
			runs[status.Name] = status.Image
			w.total.SidecarRestarts += int32(sign) * status.RestartCount
		} else {
			w.total.AppRestarts += int32(sign) * status.RestartCount
		}
	}
	upgraded, settled := w.sidecar(pod, runs)
	if upgraded == "" {
		return
	}
	w.total.Updated += sign
	// A pod that never ran is new, not being upgraded.
	if runs[upgraded] != "" && (!settled || !ready) {
		w.total.InFlight += sign
	}
}

// sidecar names the container that is to run the image, if one is, and tells
// whether it does, and its twin is empty.
func (w *Witness) sidecar(pod *corev1.Pod, runs map[string]string) (upgraded string, settled bool) {
	settled = true
	for i := range pod.Spec.Containers {
		switch c := &pod.Spec.Containers[i]; {
		case !slices.Contains(w.names, c.Name):
		case c.Image == w.image:
			upgraded = c.Name
			settled = settled && runs[c.Name] == w.image
		default:
			settled = settled && c.Image == w.empty && runs[c.Name] == w.empty
		}
	}
	return upgraded, settled
}

// Ready tells whether a pod has the condition Ready.
func Ready(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
