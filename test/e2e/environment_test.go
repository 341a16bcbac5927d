//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/observer"
)

const (
	appLabel = "app"
	sidecar  = "side"
	// environmentWithin is long, because the machine may be overloaded.
	environmentWithin = 10 * time.Minute
)

// environment is a namespace with a SidecarSet and pods of one test.
type environment struct {
	t       testing.TB
	ctx     context.Context
	name    string
	set     *v1alpha1.SidecarSet
	watched *observer.Watch
}

// newEnvironment creates a namespace, and a SidecarSet with an idle sidecar for the pods of the namespace.
func newEnvironment(t testing.TB, maxUnavailable int32, change func(*v1alpha1.SidecarSet)) *environment {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), environmentWithin)
	t.Cleanup(cancel)
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "_", "-"))
	name = strings.Trim(name[max(len(name)-40, 0):], "-")
	s := &environment{t: t, ctx: ctx, name: name}
	require.NoError(t, stack.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	s.set = &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: name}}
	s.set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: sidecar, Image: v1}}}
	s.set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(maxUnavailable))
	if change != nil {
		change(s.set)
	}
	require.NoError(t, stack.kube.Create(ctx, s.set))
	t.Cleanup(s.clean)
	return s
}

// clean removes the SidecarSet and the namespace, and waits until the pods are gone, so that the next
// environment starts without these pods.
func (s *environment) clean() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), environmentWithin)
	defer cancel()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	for _, o := range []client.Object{s.set, namespace} {
		require.NoError(s.t, client.IgnoreNotFound(stack.kube.Delete(ctx, o)))
	}
	err := wait.PollUntilContextCancel(ctx, time.Second/10, true, func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := stack.kube.List(ctx, &pods, client.InNamespace(s.name))
		return err == nil && len(pods.Items) == 0, err
	})
	require.NoError(s.t, err, "wait for the pods to go")
}

// deploy creates n pods, and waits until the pods run the sidecar.
func (s *environment) deploy(n int, image string) {
	s.t.Helper()
	s.watch(image)
	labels := map[string]string{appLabel: s.name}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "app"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(n)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}
	require.NoError(s.t, stack.kube.Create(s.ctx, deployment))
	s.await(observer.Converged(n))
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: repository + "app:1"}}}
}

func (s *environment) watch(image string) {
	s.t.Helper()
	config, err := stack.RESTConfig()
	require.NoError(s.t, err)
	all, empty := slices.Concat(s.set.Spec.Containers, s.set.Spec.InitContainers), ""
	if strategy := all[0].UpgradeStrategy; strategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade {
		empty = strategy.HotUpgradeEmptyImage
	}
	s.watched, err = observer.WatchPods(s.ctx, config, s.name, "", sidecar, empty)
	require.NoError(s.t, err)
	s.watched.Expect(image)
}

func (s *environment) await(condition func(observer.View) bool) observer.View {
	s.t.Helper()
	view, err := s.watched.Await(s.ctx, condition)
	require.NoError(s.t, err)
	return view
}

// upgradeTo changes the image of the SidecarSet, and sets the expected image of the pods.
func (s *environment) upgradeTo(image string) {
	s.t.Helper()
	s.watched.Expect(image)
	list := "containers"
	if len(s.set.Spec.Containers) == 0 {
		list = "initContainers"
	}
	s.edit(fmt.Sprintf(`[{"op":"replace","path":"/spec/%s/0/image","value":%q}]`, list, image))
}

func (s *environment) edit(patch string) {
	s.t.Helper()
	require.NoError(s.t, stack.kube.Patch(s.ctx, s.set, client.RawPatch(types.JSONPatchType, []byte(patch))))
}

// within asserts that at most maxUnavailable pods were in flight, and that no app container has restarted.
func (s *environment) within(maxUnavailable int) {
	s.t.Helper()
	worst, event := s.watched.Worst()
	require.LessOrEqual(s.t, worst, maxUnavailable, "pods in flight at %s", event)
	require.Zero(s.t, s.watched.View().AppRestarts, "an app container restarted")
}

// awaitReason waits until a condition of the newest generation has the reason.
func (s *environment) awaitReason(condition, reason string) {
	s.t.Helper()
	s.poll(fmt.Sprintf("condition %s to say %s", condition, reason), func() (bool, error) {
		set := &v1alpha1.SidecarSet{}
		err := stack.kube.Get(s.ctx, client.ObjectKeyFromObject(s.set), set)
		found := meta.FindStatusCondition(set.Status.Conditions, condition)
		return err == nil && set.Status.ObservedGeneration == s.set.Generation && found != nil && found.Reason == reason, err
	})
}

func (s *environment) pods() []corev1.Pod {
	s.t.Helper()
	var pods corev1.PodList
	require.NoError(s.t, stack.kube.List(s.ctx, &pods, client.InNamespace(s.name)))
	return pods.Items
}

func (s *environment) poll(what string, done func() (bool, error)) {
	s.t.Helper()
	err := wait.PollUntilContextCancel(s.ctx, time.Second/10, true, func(context.Context) (bool, error) { return done() })
	require.NoError(s.t, err, "wait for %s", what)
}

// containers returns the statuses of the containers and init containers of a pod by name.
func containers(pod *corev1.Pod) map[string]corev1.ContainerStatus {
	found := map[string]corev1.ContainerStatus{}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			found[statuses[i].Name] = statuses[i]
		}
	}
	return found
}
