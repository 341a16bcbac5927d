package switchover

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
)

const (
	bin       = "../../bin"
	namespace = "apps"
)

// scenario is a separate cluster.
type scenario struct {
	t       *testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	client  client.Client
	// dir is the working directory of commands.
	dir string
}

func newScenario(t *testing.T) *scenario {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Nodes: 2})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	config, err := c.RESTConfig()
	require.NoError(t, err)
	config.QPS, config.Burst = 500, 1000
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	require.NoError(t, admissionregistrationv1.AddToScheme(scheme))
	direct, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	s := &scenario{t: t, ctx: ctx, cluster: c, client: direct, dir: t.TempDir()}
	require.NoError(t, direct.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	s.await("the service account", func() error {
		return direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{})
	})
	return s
}

func (s *scenario) await(what string, done func() error) {
	s.t.Helper()
	var cause error
	err := wait.PollUntilContextCancel(s.ctx, 500*time.Millisecond, true, func(context.Context) (bool, error) {
		cause = done()
		return cause == nil, nil
	})
	require.NoError(s.t, err, "wait for %s: %v", what, cause)
}

func (s *scenario) pods() []corev1.Pod {
	s.t.Helper()
	list := &corev1.PodList{}
	require.NoError(s.t, s.client.List(s.ctx, list, client.InNamespace(namespace)))
	return list.Items
}

func (s *scenario) awaitReady() {
	s.t.Helper()
	s.awaitPods("ready", corev1.PodReady)
}

// awaitCondition waits until all pods are ready and have the condition SidecarSetUpgradable. Outrigger writes
// this condition after the upgrades.
func (s *scenario) awaitCondition() {
	s.t.Helper()
	s.awaitPods("ready, and upgradable as far as they say", corev1.PodReady, v1alpha1.UpgradableCondition)
}

// awaitPods waits until all conditions are True in all pods, and each container runs the image in the spec of
// its pod. The images are compared because the kubelet restarts the standby twin of a hot sidecar only after
// the end of the rollout.
func (s *scenario) awaitPods(what string, conditions ...corev1.PodConditionType) {
	s.t.Helper()
	s.await("all pods to be "+what, func() error {
		waiting := 0
		pods := s.pods()
		for i := range pods {
			if !runsImages(&pods[i]) || slices.ContainsFunc(conditions, func(kind corev1.PodConditionType) bool { return !holds(&pods[i], kind) }) {
				waiting++
			}
		}
		if waiting > 0 {
			return fmt.Errorf("%d of %d pods are not", waiting, len(pods))
		}
		return nil
	})
}

func runsImages(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return !slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == c.Name && s.Image == c.Image })
	})
}

func holds(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

// contents returns all pods without the fields that the kubelets write. The simulated kubelet sometimes
// repeats a write, because the kubelet receives the events of other writes late.
func (s *scenario) contents() map[string]corev1.Pod {
	s.t.Helper()
	contents := map[string]corev1.Pod{}
	for _, pod := range s.pods() {
		pod.ResourceVersion, pod.ManagedFields = "", nil
		pod.Status = corev1.PodStatus{Conditions: slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type != v1alpha1.UpgradableCondition
		})}
		contents[pod.Name] = pod
	}
	return contents
}

// sameContents asserts that the contents of all pods are equal to before.
func (s *scenario) sameContents(before map[string]corev1.Pod, message string) {
	s.t.Helper()
	now := s.contents()
	assert.Len(s.t, now, len(before), message)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		require.Equal(s.t, before[name], now[name], "%s: %s", name, message)
	}
}

// awaitComplete waits until the status of each SidecarSet shows that all pods are updated and ready, and that
// the rollout has ended.
func (s *scenario) awaitComplete() {
	s.t.Helper()
	for _, f := range workloads() {
		s.await("the rollout of "+f.name, func() error {
			set := &v1alpha1.SidecarSet{}
			if err := s.client.Get(s.ctx, client.ObjectKey{Name: f.name}, set); err != nil {
				return err
			}
			st, n := set.Status, int32(f.pods)
			if st.ObservedGeneration != set.Generation || st.MatchedPods != n || st.UpdatedPods != n || st.UpdatedReadyPods != n {
				return fmt.Errorf("generation %d, status %+v", set.Generation, st)
			}
			for _, condition := range st.Conditions {
				if condition.Reason == v1alpha1.ReasonRolloutComplete {
					return nil
				}
			}
			return fmt.Errorf("conditions %+v", st.Conditions)
		})
	}
}

// check runs outrigger migrate check, and returns its output. The test fails if the command finds blockers.
func (s *scenario) check(args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, filepath.Join(bin, "outrigger"), append([]string{"migrate", "check", "--kubeconfig=" + s.cluster.Kubeconfig}, args...)...)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	require.NoError(s.t, cmd.Run(), "%s%s", &out, &failure)
	return out.String()
}

// shell runs a command of the report or of docs/migration.md.
func (s *scenario) shell(command string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, "sh", "-c", command)
	path, err := filepath.Abs(bin)
	require.NoError(s.t, err)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig, "PATH="+path+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s: %s", command, out)
}

// documented runs commands of docs/migration.md without changes.
func (s *scenario) documented(commands ...string) {
	s.t.Helper()
	guide, err := os.ReadFile("../../docs/migration.md")
	require.NoError(s.t, err)
	for _, command := range commands {
		require.Contains(s.t, string(guide), command+"\n")
		s.shell(command)
	}
}

func (s *scenario) golden(file, got string) {
	s.t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", file))
	require.NoError(s.t, err)
	assert.Equal(s.t, string(want), got, file)
}
