package witness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// Witness counts, at every event, the pods whose sidecar is being replaced: from the write of
// another image into the spec of a serving pod until the pod runs that image and serves again.
type Witness struct {
	// names of the sidecar's containers: one, or two twins of which one has the image empty.
	names []string
	empty string

	mu     sync.Mutex
	image  string
	pods   map[types.UID]observed
	total  View
	asked  map[string]int
	worst  int
	when   string
	change chan struct{}
	// askedAt and servedAt are the updates to the expected image.
	askedAt, servedAt []Update
}

// observed is the last known state of a pod.
type observed struct {
	*corev1.Pod
	// moving pods served at the last write of another image, and have not served since.
	moving bool
	// asked are the containers with another image that have not restarted yet.
	asked map[string]asked
}

// View is the state of all pods at one moment.
type View struct {
	Pods int
	// Ready pods have the condition Ready.
	Ready int
	// Updated pods have the expected image in their spec.
	Updated int
	// InFlight pods served until another image was written into their spec, and do not serve
	// with it yet.
	InFlight int
	// AppRestarts counts restarts of containers, and init containers, other than the
	// sidecar.
	AppRestarts int32
	// SidecarRestarts counts those of the sidecar.
	SidecarRestarts int32
}

// Watch follows one container of each pod of a namespace that matches the selector, until ctx
// ends.
func Watch(ctx context.Context, config *rest.Config, namespace, selector, container string) (*Witness, error) {
	return watch(ctx, config, namespace, selector, &Witness{names: []string{container}})
}

// WatchTwins is Watch for a hot sidecar: one of its twins has the image empty unless the pod
// is being upgraded.
func WatchTwins(ctx context.Context, config *rest.Config, namespace, selector, container, empty string) (*Witness, error) {
	return watch(ctx, config, namespace, selector, &Witness{names: []string{container + "-1", container + "-2"}, empty: empty})
}

func watch(ctx context.Context, config *rest.Config, namespace, selector string, w *Witness) (*Witness, error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect the witness: %w", err)
	}
	w.pods, w.asked, w.change = map[types.UID]observed{}, map[string]int{}, make(chan struct{})
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
	informer := factory.Core().V1().Pods().Informer()
	registered, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.observe,
		UpdateFunc: func(_, pod any) { w.observe(pod) },
		DeleteFunc: w.forget,
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

// Expect sets the image that the sidecar shall run from now on. Worst is not reset.
func (w *Witness) Expect(image string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.image = image
	w.total = View{}
	w.askedAt, w.servedAt = nil, nil
	for _, pod := range w.pods {
		w.count(pod, 1)
	}
	w.recordWorst("expectation")
}

// Worst is the largest number of pods ever in flight at once, and at which event.
func (w *Witness) Worst() (inFlight int, event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.worst, w.when
}

// Asked is how often an image was written into the spec of a pod that had another one.
func (w *Witness) Asked(image string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[image]
}

// View is the state of all pods now.
func (w *Witness) View() View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// Await waits until the pods fulfil the condition.
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
		pod, change := w.pods[uid].Pod, w.change
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

func (w *Witness) observe(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replace(pod.UID, pod)
	w.recordWorst(pod.Name + " at " + pod.ResourceVersion)
}

func (w *Witness) forget(o any) {
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
	w.recordWorst(pod.Name + " gone")
}

// replace replaces the state of a pod. Terminating pods do not count.
func (w *Witness) replace(uid types.UID, pod *corev1.Pod) {
	before, ok := w.pods[uid]
	if ok {
		w.count(before, -1)
		w.countAsked(before.Pod, pod)
		delete(w.pods, uid)
	}
	if pod != nil && pod.DeletionTimestamp == nil {
		now := observed{Pod: pod, asked: w.stillAsked(before, pod)}
		now.moving = w.moving(before, now)
		w.pods[uid] = now
		w.recordUpdate(before, now, time.Now())
		w.count(now, 1)
	}
}

// countAsked counts new images in the spec of a pod.
func (w *Witness) countAsked(before, pod *corev1.Pod) {
	if pod == nil {
		return
	}
	old := w.images(before)
	for i, image := range w.images(pod) {
		if i < len(old) && old[i] != image {
			w.asked[image]++
		}
	}
}

// moving reports whether a pod is in flight, by its previous state.
func (w *Witness) moving(before, now observed) bool {
	settled, ready := w.settled(now), Ready(now.Pod)
	switch {
	case settled && ready:
		return false
	case ready:
		// The pending restart will interrupt it.
		return true
	}
	// One event may show both the write and the restart.
	asked := before.Pod != nil && Ready(before.Pod) && !slices.Equal(w.images(before.Pod), w.images(now.Pod))
	return before.moving || asked
}

// recordWorst keeps the largest number in flight, and wakes waiting callers.
func (w *Witness) recordWorst(event string) {
	if w.total.InFlight > w.worst {
		w.worst, w.when = w.total.InFlight, event
	}
	close(w.change)
	w.change = make(chan struct{})
}

// count adds a pod to the total, or removes it with sign -1.
func (w *Witness) count(pod observed, sign int) {
	w.total.Pods += sign
	if Ready(pod.Pod) {
		w.total.Ready += sign
	}
	if w.updated(pod.Pod) {
		w.total.Updated += sign
	}
	if pod.moving {
		w.total.InFlight += sign
	}
	for _, list := range statuses(pod.Pod) {
		for i := range list {
			if slices.Contains(w.names, list[i].Name) {
				w.total.SidecarRestarts += int32(sign) * list[i].RestartCount
			} else {
				w.total.AppRestarts += int32(sign) * list[i].RestartCount
			}
		}
	}
}

// containers and statuses include init containers: a native sidecar is one.
func containers(pod *corev1.Pod) [2][]corev1.Container {
	return [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers}
}

func statuses(pod *corev1.Pod) [2][]corev1.ContainerStatus {
	return [...][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses}
}

// images are the images of the sidecar's containers in the spec.
func (w *Witness) images(pod *corev1.Pod) (images []string) {
	for _, list := range containers(pod) {
		for i := range list {
			if slices.Contains(w.names, list[i].Name) {
				images = append(images, list[i].Image)
			}
		}
	}
	return images
}

// Ready reports whether a pod has the condition Ready.
func Ready(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
