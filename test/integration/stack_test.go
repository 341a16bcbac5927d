package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/temporal/codec"
)

// stack is the local stack that all tests of this package share.
var stack struct {
	*cluster.Cluster
	kube     client.Client
	temporal sdk.Client
	// codec contains the keys of encrypted runs. If runs are not encrypted, codec is nil.
	codec  *codec.Codec
	traces *receiver
}

const bin = "../../bin"

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "outrigger-integration-")
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if stack.Cluster, err = cluster.Start(ctx, cluster.Options{Dir: dir}); err != nil {
		return 0, err
	}
	defer func() {
		stack.Shutdown()
		if code == 0 {
			_ = os.RemoveAll(dir)
		} else {
			fmt.Fprintln(os.Stderr, "integration: logs are kept in", stack.LogDir())
		}
	}()
	received, stopReceiver, err := startReceiver()
	if err != nil {
		return 1, err
	}
	defer stopReceiver()
	stack.traces = received
	for _, role := range []string{"operator", "webhook", "worker-1", "worker-2"} {
		if _, err := stack.StartRole(ctx, role); err != nil {
			return 1, err
		}
	}
	if err := connect(); err != nil {
		return 1, err
	}
	defer stack.temporal.Close()
	if code = m.Run(); code != 0 {
		return code, nil
	}
	replaying, done := context.WithTimeout(context.Background(), 10*time.Minute)
	defer done()
	if err := replayHistories(replaying); err != nil {
		return 1, err
	}
	return 0, nil
}

func connect() error {
	config, err := stack.RESTConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	for _, add := range []func(*runtime.Scheme) error{policyv1.AddToScheme, batchv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if stack.kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	stack.temporal, err = sdk.NewLazyClient(sdk.Options{
		HostPort: stack.TemporalAddress, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	return err
}

// startControlPlane starts a separate control plane for a test, and returns a client. The roles of this
// control plane use the Temporal of the stack.
func startControlPlane(t *testing.T, add ...func(*runtime.Scheme) error) (*cluster.Cluster, client.Client) {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), WithoutNodes: true, WithoutTemporal: true})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	c.TemporalAddress = stack.TemporalAddress
	config, err := c.RESTConfig()
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	for _, to := range add {
		require.NoError(t, to(scheme))
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c, direct
}

// scenario is a namespace with a SidecarSet and pods of one test.
type scenario struct {
	t       *testing.T
	ctx     context.Context
	name    string
	set     *v1alpha1.SidecarSet
	watched *observer.Watch
}

// These annotations configure the simulated kubelet of a pod: the delay of the clock, and the time until the
// pod is ready.
const (
	clockBehind = "kwok.outrigger.io/clock-behind"
	readyAfter  = "kwok.outrigger.io/ready-after"
)

// newScenario creates a SidecarSet with the image side:v1 for pods with the label app=<name>, and creates n
// such pods.
func newScenario(t *testing.T, n int32, change func(*v1alpha1.SidecarSet)) *scenario {
	t.Helper()
	return newKubeletScenario(t, n, nil, change)
}

// newKubeletScenario creates a scenario like newScenario, with annotations for the simulated kubelet of the
// pods.
func newKubeletScenario(t *testing.T, n int32, kubelet map[string]string, change func(*v1alpha1.SidecarSet)) *scenario {
	t.Helper()
	return newNamedScenario(t, scenarioName(t), n, kubelet, change)
}

// slow sets the time that the pods need to become ready after a restart, so that the rollout is still in
// progress when the test acts.
func (s *scenario) slow(after string) *scenario {
	s.t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, readyAfter, after))
	for _, pod := range s.pods() {
		require.NoError(s.t, stack.kube.Patch(s.ctx, &pod, patch))
	}
	return s
}

// scenarioName returns the name of the only scenario of a test.
func scenarioName(t *testing.T) string {
	name := strings.ToLower(strings.NewReplacer("_", "-", "/", "-").Replace(strings.TrimPrefix(t.Name(), "Test")))
	return strings.Trim(name[max(len(name)-40, 0):], "-")
}

// create creates the SidecarSet. On a busy machine, the dry run of the webhook can exceed its timeout; the error
// then asks the client to try again.
func (s *scenario) create() {
	s.t.Helper()
	s.poll("the SidecarSet to be checked", func() (bool, error) {
		err := stack.kube.Create(s.ctx, s.set.DeepCopy())
		if err != nil && strings.HasSuffix(err.Error(), "; try again") {
			return false, nil
		}
		return true, err
	})
	require.NoError(s.t, stack.kube.Get(s.ctx, client.ObjectKeyFromObject(s.set), s.set))
}

// newNamedScenario creates a scenario like newKubeletScenario, for tests with several scenarios.
func newNamedScenario(t *testing.T, name string, n int32, kubelet map[string]string, change func(*v1alpha1.SidecarSet)) *scenario {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	s := &scenario{t: t, ctx: ctx, name: name}
	require.NoError(t, stack.kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	s.set = &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s.set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	s.set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v1"}}}
	two := intstr.FromInt32(2)
	s.set.Spec.UpdateStrategy.MaxUnavailable = &two
	if change != nil {
		change(s.set)
	}
	s.create()
	t.Cleanup(s.clean)
	config, err := stack.RESTConfig()
	require.NoError(t, err)
	empty := ""
	if all := s.set.Spec.Containers; len(all) > 0 && all[0].UpgradeStrategy.UpgradeType == v1alpha1.SidecarContainerHotUpgrade {
		empty = all[0].UpgradeStrategy.HotUpgradeEmptyImage
	}
	s.watched, err = observer.WatchPods(ctx, config, name, "app="+name, "side", empty)
	require.NoError(t, err)
	s.watched.Expect("side:v1")
	if s.set.Spec.Selector.MatchLabels["app"] == name && s.set.Spec.NamespaceSelector == nil {
		s.awaitInjection(name)
	}
	if n > 0 {
		pods := deployment(name, n)
		pods.Spec.Template.Annotations = kubelet
		require.NoError(t, stack.kube.Create(ctx, pods))
		s.await(observer.Converged(int(n)))
	}
	return s
}

// awaitInjection waits until the webhook has observed the SidecarSet whose name is the label app of its pods. A
// pod that is created earlier gets no sidecar. The API server rejects pods until the namespace has a service
// account, so awaitInjection retries.
func (s *scenario) awaitInjection(set string) {
	s.t.Helper()
	require.NoError(s.t, awaitInjection(s.ctx, stack.kube, s.name, set, set))
}

// awaitInjection is like the method awaitInjection, for any cluster and namespace.
func awaitInjection(ctx context.Context, kube client.Client, namespace, app, set string) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var pod *corev1.Pod
		pod, last = dryRunPodIn(ctx, kube, namespace, app)
		return last == nil && slices.Contains(strings.Split(pod.Annotations[v1alpha1.InjectedListAnnotation], ","), set), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the webhook to observe SidecarSet %s: %w", set, errors.Join(err, last))
	}
	return nil
}

func (s *scenario) clean() {
	// The context of the test has ended.
	ctx := context.WithoutCancel(s.ctx)
	for _, o := range []client.Object{s.set, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}} {
		require.NoError(s.t, client.IgnoreNotFound(stack.kube.Delete(ctx, o)))
	}
}

func deployment(name string, n int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "app"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
			},
		},
	}
}

func (s *scenario) scale(n int32) {
	s.t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n))
	require.NoError(s.t, stack.kube.Patch(s.ctx, deployment(s.name, n), patch))
}

func (s *scenario) await(condition func(observer.View) bool) observer.View {
	s.t.Helper()
	view, err := s.watched.Await(s.ctx, condition)
	require.NoError(s.t, err)
	return view
}

// upgradeTo changes the image of the SidecarSet, and sets the expected image of the pods.
func (s *scenario) upgradeTo(image string) {
	s.t.Helper()
	s.watched.Expect(image)
	s.edit(fmt.Sprintf(`[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, image))
}

func (s *scenario) edit(patch string) {
	s.t.Helper()
	require.NoError(s.t, stack.kube.Patch(s.ctx, s.set, client.RawPatch(types.JSONPatchType, []byte(patch))))
}

// within asserts that at most limit pods were in flight, and that no app container has restarted.
func (s *scenario) within(limit int) {
	s.t.Helper()
	worst, event := s.watched.Worst()
	require.LessOrEqual(s.t, worst, limit, "pods in flight at %s", event)
	require.Zero(s.t, s.watched.View().AppRestarts, "an app container restarted")
}

// awaitSet waits until condition is true for the stored SidecarSet, and returns the SidecarSet.
func (s *scenario) awaitSet(what string, condition func(*v1alpha1.SidecarSet) bool) *v1alpha1.SidecarSet {
	s.t.Helper()
	set := &v1alpha1.SidecarSet{}
	s.poll(what, func() (bool, error) {
		err := stack.kube.Get(s.ctx, client.ObjectKeyFromObject(s.set), set)
		return err == nil && condition(set), err
	})
	return set
}

func counts(n int32) func(*v1alpha1.SidecarSet) bool {
	return func(set *v1alpha1.SidecarSet) bool {
		st := set.Status
		return st.ObservedGeneration == set.Generation && st.MatchedPods == n && st.UpdatedPods == n && st.ReadyPods == n && st.UpdatedReadyPods == n
	}
}

func (s *scenario) workflow() string { return protocol.WorkflowID(s.set.Name, s.set.UID) }

// status queries the status of the newest run.
func (s *scenario) status() (protocol.RolloutStatus, error) {
	var status protocol.RolloutStatus
	answer, err := stack.temporal.QueryWorkflow(s.ctx, s.workflow(), "", protocol.StatusQuery)
	if err != nil {
		return status, err
	}
	return status, answer.Get(&status)
}

// awaitPhase waits until the newest run has the generation of the SidecarSet and the phase, and returns the
// status of the run.
func (s *scenario) awaitPhase(phase protocol.Phase) protocol.RolloutStatus {
	s.t.Helper()
	return s.awaitStatus(fmt.Sprintf("run of generation %d to be %s", s.set.Generation, phase), func(status protocol.RolloutStatus) bool {
		return status.Generation == s.set.Generation && status.Phase == phase
	})
}

func (s *scenario) awaitStatus(what string, holds func(protocol.RolloutStatus) bool) (status protocol.RolloutStatus) {
	s.t.Helper()
	s.poll(what, func() (bool, error) {
		var err error
		if status, err = s.status(); err != nil {
			return false, nil // The run may not have started, or no worker may be available.
		}
		return holds(status), nil
	})
	return status
}

func (s *scenario) poll(what string, done func() (bool, error)) {
	s.t.Helper()
	err := wait.PollUntilContextCancel(s.ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) { return done() })
	require.NoError(s.t, err, "wait for %s", what)
}

// kubectl runs kubectl as an administrator, and returns the output and the error. The API cache of kubectl is
// separate for each cluster, because an earlier cluster may have had the same port.
func kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cache := filepath.Join(filepath.Dir(stack.Kubeconfig), "cache")
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "kubectl"), append([]string{"--kubeconfig=" + stack.Kubeconfig, "--cache-dir=" + cache}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// temporal runs the CLI of Temporal against the server of the stack.
func temporal(ctx context.Context, args ...string) (string, error) {
	args = append(args, "--address", stack.TemporalAddress)
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "temporal"), args...).CombinedOutput()
	return string(out), err
}
