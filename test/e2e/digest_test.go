//go:build e2e

package e2e

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

// restarts observes pods whose containers must restart exactly once, even if only the name of the image
// changes. A pod is unavailable from the write until the pod is ready after the restart.
type restarts struct {
	mu    sync.Mutex
	image string
	down  map[types.UID]bool
	done  map[types.UID]bool
	worst int
}

func (r *restarts) observe(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	asked := false
	for i := range pod.Spec.Containers {
		asked = asked || pod.Spec.Containers[i].Image == r.image
	}
	r.done[pod.UID] = asked && containers(pod)[sidecar].RestartCount > 0 && observer.Ready(pod)
	delete(r.down, pod.UID)
	if asked && !r.done[pod.UID] {
		r.down[pod.UID] = true
	}
	r.worst = max(r.worst, len(r.down))
}

// all reports whether n pods have restarted.
func (r *restarts) all(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := 0
	for _, is := range r.done {
		if is {
			done++
		}
	}
	return done == n
}

// The runtime already has the image, so the reported name and ID of the image do not change with the restart.
func TestSpec7_5_PinningTheDigestThatRunsKeepsMaxUnavailable(t *testing.T) {
	const pods, limit = 10, 2
	s := newEnvironment(t, limit, nil)
	s.deploy(pods, v1)
	_, digest, ok := strings.Cut(containers(&s.pods()[0])[sidecar].ImageID, "@")
	require.True(t, ok, "the runtime reports no digest")
	image := v1 + "@" + digest

	seen := &restarts{image: image, down: map[types.UID]bool{}, done: map[types.UID]bool{}}
	config, err := stack.RESTConfig()
	require.NoError(t, err)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithNamespace(s.name))
	watch, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: seen.observe, UpdateFunc: func(_, pod any) { seen.observe(pod) },
	})
	require.NoError(t, err)
	factory.StartWithContext(s.ctx)
	require.True(t, cache.WaitForCacheSync(s.ctx.Done(), watch.HasSynced))

	s.upgradeTo(image)
	s.poll("all sidecars to restart", func() (bool, error) { return seen.all(pods), nil })
	s.awaitReason(v1alpha1.ConditionProgressing, v1alpha1.ReasonRolloutComplete)
	for _, pod := range s.pods() {
		assert.EqualValues(t, 1, containers(&pod)[sidecar].RestartCount, pod.Name)
		assert.Zero(t, containers(&pod)["app"].RestartCount, pod.Name)
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	assert.LessOrEqual(t, seen.worst, limit, "pods that were written and have not served since")
}
