package observer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// Watch counts, at every event, the pods whose sidecar is being upgraded: from the write of
// another image into the spec of a serving pod until the pod runs that image and serves again.
type Watch struct {
	// names of the sidecar's containers: one, or two twins of which one has the image empty.
	names []string
	empty string

	mu      sync.Mutex
	image   string
	pods    map[types.UID]counted
	total   View
	asked   map[string]int
	worst   int
	when    string
	changed chan struct{}
	// askedAt and servedAt are the updates to the expected image.
	askedAt, servedAt []Update
}

// counted is the last known state of a pod.
type counted struct {
	*corev1.Pod
	// inFlight pods served at the last write of another image, and have not served since.
	inFlight bool
	// restarting are the containers with another image that have not restarted yet, in their
	// state before the write.
	restarting map[string]container
}

// container is the image in the spec of a container, and its status.
type container struct {
	image, imageID string
	restarts       int32
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

// Update is the time at which a pod got the expected image in its spec, or served with it.
type Update struct {
	At time.Time
	// Labels are the pod's.
	Labels map[string]string
}

// WatchPods follows one container of each pod of a namespace that matches the selector, until
// ctx ends.
func WatchPods(ctx context.Context, config *rest.Config, namespace, selector, name string) (*Watch, error) {
	w := newWatch("", name)
	return w, w.start(ctx, config, namespace, selector)
}

// WatchTwins is WatchPods for a hot sidecar: one of its twins has the image empty unless the
// pod is being upgraded.
func WatchTwins(ctx context.Context, config *rest.Config, namespace, selector, name, empty string) (*Watch, error) {
	w := newWatch(empty, name+"-1", name+"-2")
	return w, w.start(ctx, config, namespace, selector)
}

func newWatch(empty string, names ...string) *Watch {
	return &Watch{names: names, empty: empty, pods: map[types.UID]counted{}, asked: map[string]int{}, changed: make(chan struct{})}
}

func (w *Watch) start(ctx context.Context, config *rest.Config, namespace, selector string) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }))
	registered, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    w.observe,
		UpdateFunc: func(_, pod any) { w.observe(pod) },
		DeleteFunc: w.forget,
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registered.HasSynced) {
		return fmt.Errorf("watch pods: %w", context.Cause(ctx))
	}
	return nil
}

// Expect sets the image that the sidecar shall run from now on. Worst is not reset.
func (w *Watch) Expect(image string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.image, w.total, w.askedAt, w.servedAt = image, View{}, nil, nil
	for _, pod := range w.pods {
		w.count(pod, 1)
	}
	w.changedBy("expectation")
}

// Worst is the largest number of pods ever in flight at once, and at which event.
func (w *Watch) Worst() (inFlight int, event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.worst, w.when
}

// Asked is how often an image was written into the spec of a pod that had another one.
func (w *Watch) Asked(image string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[image]
}

// View is the state of all pods now.
func (w *Watch) View() View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// Updates returns the updates since the last Expect, in the order of their events. The pods in
// asked had another image before.
func (w *Watch) Updates() (asked, served []Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.askedAt), slices.Clone(w.servedAt)
}

// Await waits until the pods fulfil the condition.
func (w *Watch) Await(ctx context.Context, condition func(View) bool) (View, error) {
	view, err := await(ctx, w, func() View { return w.total }, condition)
	if err != nil {
		return view, fmt.Errorf("pods stayed at %+v: %w", view, err)
	}
	return view, nil
}

// AwaitPod waits until one pod fulfils the condition.
func (w *Watch) AwaitPod(ctx context.Context, uid types.UID, condition func(*corev1.Pod) bool) (*corev1.Pod, error) {
	pod, err := await(ctx, w, func() *corev1.Pod { return w.pods[uid].Pod }, func(pod *corev1.Pod) bool { return pod != nil && condition(pod) })
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", uid, err)
	}
	return pod, nil
}

// await reads at every event until the condition holds.
func await[T any](ctx context.Context, w *Watch, read func() T, condition func(T) bool) (T, error) {
	for {
		w.mu.Lock()
		state, changed := read(), w.changed
		w.mu.Unlock()
		if condition(state) {
			return state, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return state, context.Cause(ctx)
		}
	}
}

// Converged is the condition that all n pods run the image and are ready.
func Converged(n int) func(View) bool {
	return func(v View) bool { return v.Pods == n && v.Updated == n && v.InFlight == 0 && v.Ready == n }
}

func (w *Watch) observe(o any) {
	if pod, ok := o.(*corev1.Pod); ok {
		w.replace(pod.UID, pod, pod.Name+" at "+pod.ResourceVersion)
	}
}

func (w *Watch) forget(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	if pod, ok := o.(*corev1.Pod); ok {
		w.replace(pod.UID, nil, pod.Name+" gone")
	}
}

// replace replaces the state of a pod, which is nil once the pod is gone. Terminating pods do
// not count.
func (w *Watch) replace(uid types.UID, pod *corev1.Pod, event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, known := w.pods[uid]
	if known {
		w.count(before, -1)
		delete(w.pods, uid)
	}
	if pod != nil {
		now := w.next(before, pod)
		if pod.DeletionTimestamp == nil {
			w.pods[uid] = now
			w.recordUpdate(before, now)
			w.count(now, 1)
		}
	}
	w.changedBy(event)
}

// next is the state of a pod, by its previous state. The kubelet restarts a container for any
// change of its image, also for another name of the same image.
func (w *Watch) next(before counted, pod *corev1.Pod) counted {
	now := counted{Pod: pod, restarting: map[string]container{}}
	for _, name := range w.names {
		was, waits := before.restarting[name]
		image, status := imageOf(pod, name), statusOf(pod, name)
		if before.Pod != nil && imageOf(before.Pod, name) != image {
			w.asked[image]++
			if ran := statusOf(before.Pod, name); !waits && ran.ImageID != "" {
				was, waits = container{imageOf(before.Pod, name), ran.ImageID, ran.RestartCount}, true
			}
		}
		if waits && was.image != image && was.imageID == status.ImageID && was.restarts == status.RestartCount {
			now.restarting[name] = was
		}
	}
	if Ready(pod) {
		// A pending restart will interrupt it.
		now.inFlight = !w.converged(now)
	} else {
		// One event may show both the write and the restart.
		now.inFlight = before.inFlight || before.Pod != nil && Ready(before.Pod) && !slices.Equal(w.images(before.Pod), w.images(pod))
	}
	return now
}

// converged reports whether the sidecar's containers run the images of the spec, and one of two
// twins is empty.
func (w *Watch) converged(pod counted) bool {
	for _, name := range w.names {
		if plainName(statusOf(pod.Pod, name).Image) != plainName(imageOf(pod.Pod, name)) {
			return false
		}
	}
	return len(pod.restarting) == 0 && (w.empty == "" || slices.Contains(w.images(pod.Pod), w.empty))
}

// plainName removes the parts of an image's name that runtimes add or omit.
func plainName(image string) string {
	name, _, _ := strings.Cut(image, "@")
	return strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/")
}

// recordUpdate records the change from the previous state of a pod, if there is one.
func (w *Watch) recordUpdate(before, now counted) {
	if !w.updated(now.Pod) {
		return
	}
	update := Update{At: time.Now(), Labels: maps.Clone(now.Labels)}
	if before.Pod != nil && !w.updated(before.Pod) {
		w.askedAt = append(w.askedAt, update)
	}
	if w.serves(now) && (before.Pod == nil || !w.updated(before.Pod) || !w.serves(before)) {
		w.servedAt = append(w.servedAt, update)
	}
}

// updated reports whether a pod has the expected image in its spec.
func (w *Watch) updated(pod *corev1.Pod) bool { return slices.Contains(w.images(pod), w.image) }

// serves reports whether a pod is ready with the images of its spec.
func (w *Watch) serves(pod counted) bool { return w.converged(pod) && Ready(pod.Pod) }

// changedBy records the largest number in flight, and notifies waiting callers.
func (w *Watch) changedBy(event string) {
	if w.total.InFlight > w.worst {
		w.worst, w.when = w.total.InFlight, event
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// count adds a pod to the total, or removes it with sign -1.
func (w *Watch) count(pod counted, sign int) {
	w.total.Pods += sign
	if Ready(pod.Pod) {
		w.total.Ready += sign
	}
	if w.updated(pod.Pod) {
		w.total.Updated += sign
	}
	if pod.inFlight {
		w.total.InFlight += sign
	}
	for status := range statuses(pod.Pod) {
		restarts := &w.total.AppRestarts
		if slices.Contains(w.names, status.Name) {
			restarts = &w.total.SidecarRestarts
		}
		*restarts += int32(sign) * status.RestartCount
	}
}

// images are the images of the sidecar's containers in the spec.
func (w *Watch) images(pod *corev1.Pod) (images []string) {
	for c := range containers(pod) {
		if slices.Contains(w.names, c.Name) {
			images = append(images, c.Image)
		}
	}
	return images
}
