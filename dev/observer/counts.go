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

// Watch counts, at every event, the pods whose sidecar is being upgraded. An upgrade begins when another
// image is written into the spec of a serving pod. The upgrade ends when the pod serves with this image.
type Watch struct {
	// names lists the containers of the sidecar: one container, or two twins. empty is the image
	// of the standby twin.
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
	// askedAt contains an Update for each pod into whose spec the expected image was written. servedAt
	// contains an Update for each pod that served with this image.
	askedAt, servedAt []Update
}

// counted is the last known state of a pod.
type counted struct {
	*corev1.Pod
	// inFlight is true if the pod served at the last write of another image, and has not served with this image
	// yet.
	inFlight bool
	// restarting contains the containers whose image was changed and that have not restarted yet. A value is
	// the state of the container before the write.
	restarting map[string]container
}

// container contains the image in the spec of a container, and the image ID and the restarts in the status.
type container struct {
	image, imageID string
	restarts       int32
}

// View is the state of all pods at one moment.
type View struct {
	Pods int
	// Ready is the number of pods with the condition Ready.
	Ready int
	// Updated is the number of pods with the expected image in their spec.
	Updated int
	// InFlight is the number of pods that served when another image was written into the spec, and that do not
	// serve with this image yet.
	InFlight int
	// AppRestarts is the number of restarts of all containers and init containers except the containers of the
	// sidecar.
	AppRestarts int32
	// SidecarRestarts is the number of restarts of the containers of the sidecar.
	SidecarRestarts int32
}

// Update describes the event at which the expected image was written into the spec of a pod, or at which the
// pod first served with the expected image.
type Update struct {
	At time.Time
	// Labels are the labels of the pod. Node is the name of the node of the pod.
	Labels map[string]string
	Node   string
}

// WatchPods returns a Watch of the pods in namespace that match selector. The watch ends with ctx. name is the
// name of the sidecar. If the sidecar is hot, empty is the image of one of the twins, unless the pod is being
// upgraded. If the sidecar is not hot, empty is "".
func WatchPods(ctx context.Context, config *rest.Config, namespace, selector, name, empty string) (*Watch, error) {
	w := newWatch(name, empty)
	return w, w.start(ctx, config, namespace, selector)
}

func newWatch(name, empty string) *Watch {
	names := sidecar{name: name, empty: empty}.containers()
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

// Expect sets the expected image of the sidecar, and resets the updates. Expect does not reset Worst.
func (w *Watch) Expect(image string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.image, w.total, w.askedAt, w.servedAt = image, View{}, nil, nil
	for _, pod := range w.pods {
		w.count(pod, 1)
	}
	w.changedBy("expectation")
}

// Worst returns the largest number of pods in flight at the same time, and the event at which this number was
// reached.
func (w *Watch) Worst() (inFlight int, event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.worst, w.when
}

// Asked returns the number of times that image was written into the spec of a pod with another image.
func (w *Watch) Asked(image string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[image]
}

// View returns the current state of all pods.
func (w *Watch) View() View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}

// Updates returns the updates since the last call of Expect, in the order of the events. asked contains the
// pods that had another image before. served contains the pods that serve with the expected image.
func (w *Watch) Updates() (asked, served []Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.askedAt), slices.Clone(w.servedAt)
}

// Await waits until condition is true for the state of all pods, and returns this state.
func (w *Watch) Await(ctx context.Context, condition func(View) bool) (View, error) {
	view, err := await(ctx, w, func() View { return w.total }, condition)
	if err != nil {
		return view, fmt.Errorf("pods stayed at %+v: %w", view, err)
	}
	return view, nil
}

// AwaitPod waits until condition is true for one pod, and returns the pod.
func (w *Watch) AwaitPod(ctx context.Context, uid types.UID, condition func(*corev1.Pod) bool) (*corev1.Pod, error) {
	pod, err := await(ctx, w, func() *corev1.Pod { return w.pods[uid].Pod }, func(pod *corev1.Pod) bool { return pod != nil && condition(pod) })
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", uid, err)
	}
	return pod, nil
}

// await calls read at every event until condition is true, and returns the state.
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

// Converged returns a condition that is true if n pods exist, and all pods serve with the expected image.
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

// replace replaces the state of a pod. If the pod is deleted, pod is nil. A terminating pod does not count.
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

// next returns the new state of a pod from the previous state. The kubelet restarts a container after any
// change of the image, even if the new name refers to the same image.
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
		// The upgrade of a ready pod is in progress until the pending restart has ended.
		now.inFlight = !w.converged(now)
	} else {
		// One event may show both the write and the restart.
		now.inFlight = before.inFlight || before.Pod != nil && Ready(before.Pod) && !slices.Equal(w.images(before.Pod), w.images(pod))
	}
	return now
}

// converged reports whether the containers of the sidecar run the images of the spec. One of two twins must
// have the empty image.
func (w *Watch) converged(pod counted) bool {
	for _, name := range w.names {
		if plainName(statusOf(pod.Pod, name).Image) != plainName(imageOf(pod.Pod, name)) {
			return false
		}
	}
	return len(pod.restarting) == 0 && (w.empty == "" || slices.Contains(w.images(pod.Pod), w.empty))
}

// plainName returns the name of an image without the parts that container runtimes add or omit.
func plainName(image string) string {
	name, _, _ := strings.Cut(image, "@")
	return strings.TrimPrefix(strings.TrimPrefix(name, "docker.io/"), "library/")
}

// recordUpdate records an Update if the expected image was written into the spec of a pod, or the pod has
// started to serve with this image, since the previous state.
func (w *Watch) recordUpdate(before, now counted) {
	if !w.updated(now.Pod) {
		return
	}
	update := Update{At: time.Now(), Labels: maps.Clone(now.Labels), Node: now.Spec.NodeName}
	if before.Pod != nil && !w.updated(before.Pod) {
		w.askedAt = append(w.askedAt, update)
	}
	if w.serves(now) && (before.Pod == nil || !w.updated(before.Pod) || !w.serves(before)) {
		w.servedAt = append(w.servedAt, update)
	}
}

// updated reports whether a pod has the expected image in its spec.
func (w *Watch) updated(pod *corev1.Pod) bool { return slices.Contains(w.images(pod), w.image) }

// serves reports whether a pod is ready and the sidecar runs the images of the spec.
func (w *Watch) serves(pod counted) bool { return w.converged(pod) && Ready(pod.Pod) }

// changedBy updates the largest number of pods in flight, and notifies the callers that wait.
func (w *Watch) changedBy(event string) {
	if w.total.InFlight > w.worst {
		w.worst, w.when = w.total.InFlight, event
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// count adds a pod to the total if sign is 1, and removes a pod if sign is -1.
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

// images returns the images in the spec of the pod, for the containers of the sidecar.
func (w *Watch) images(pod *corev1.Pod) (images []string) {
	for c := range containers(pod) {
		if slices.Contains(w.names, c.Name) {
			images = append(images, c.Image)
		}
	}
	return images
}
