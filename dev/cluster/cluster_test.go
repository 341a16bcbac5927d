package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// TestMain also lets the test binary run as a fake bin/outrigger.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "outrigger" {
		playRole(os.Args[1:])
		return
	}
	os.Exit(m.Run())
}

// playRole prints its arguments and answers /readyz until SIGTERM.
func playRole(args []string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println(strings.Join(args, " "))
	for _, arg := range args {
		if address, ok := strings.CutPrefix(arg, "--health-probe-bind-address="); ok {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /readyz", func(http.ResponseWriter, *http.Request) {})
			go func() { panic(http.ListenAndServe(address, mux)) }()
		}
	}
	<-ctx.Done()
}

// TestCluster tests the life cycle of one cluster, because starting several clusters is slow.
func TestCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	options := Options{
		Dir:       t.TempDir(),
		Bin:       binWithFakeRole(t),
		Manifests: []string{"testdata/crd", "testdata/rbac"},
		Nodes:     2,
	}
	c, err := Start(ctx, options)
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)

	t.Run("NodesAreReadyWithRoomForAThousandPods", func(t *testing.T) { testNodes(ctx, t, c) })
	t.Run("ImageChangeRestartsOnlyThatContainer", func(t *testing.T) { testImageChange(ctx, t, c) })
	t.Run("BadImageNeverGetsReadyUntilItIsTakenBack", func(t *testing.T) { testBadImage(ctx, t, c) })
	t.Run("KubeletsCanBeLateAndSlow", func(t *testing.T) { testKubelets(ctx, t, c) })
	t.Run("AnotherNameOfTheSameImageRestartsTheContainer", func(t *testing.T) { testAlias(ctx, t, c) })
	t.Run("CrashedContainersKeepTheirPodsUnready", func(t *testing.T) { testCrash(ctx, t, c) })
	t.Run("RolesHaveOnlyTheirOwnRights", func(t *testing.T) { testRights(ctx, t, c) })
	t.Run("FurtherUsersSignInAndHaveNoRightsByThemselves", func(t *testing.T) { testFurtherUser(ctx, t, c) })
	t.Run("RolesRunWithTheAgreedFlags", func(t *testing.T) { testRoles(ctx, t, c) })
	for _, name := range []string{Etcd, APIServer, KWOK, ControllerManager, Scheduler} {
		t.Run("DataOutlivesKillOf/"+name, func(t *testing.T) { testKill(ctx, t, c, name) })
	}
	t.Run("WorkflowsOutliveKillOfTemporal", func(t *testing.T) { testTemporal(ctx, t, c) })
	t.Run("ShutdownLeavesNothing", func(t *testing.T) { testShutdown(t, c) })
	t.Run("KeptStateIsUsedAgain", func(t *testing.T) { testKeptState(ctx, t, options) })
}

func TestAnUnknownTemporalIsRejected(t *testing.T) {
	_, err := Start(t.Context(), Options{Dir: t.TempDir(), Temporal: "cassandra"})
	require.ErrorContains(t, err, `Temporal: "cassandra" is neither dev-server nor cluster`)
}

func binWithFakeRole(t *testing.T) string {
	root, err := findRoot()
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Join(root, "bin"))
	require.NoError(t, err)
	bin := t.TempDir()
	for _, entry := range entries {
		if entry.Name() != "outrigger" {
			require.NoError(t, os.Symlink(filepath.Join(root, "bin", entry.Name()), filepath.Join(bin, entry.Name())))
		}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "outrigger")))
	return bin
}

func clientOf(t *testing.T, c *Cluster) kubernetes.Interface {
	config, err := c.RESTConfig()
	require.NoError(t, err)
	return kubernetes.NewForConfigOrDie(config)
}

func testNodes(ctx context.Context, t *testing.T, c *Cluster) {
	nodes, err := clientOf(t, c).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, nodes.Items, 2)
	for i := range nodes.Items {
		assert.True(t, Schedulable(&nodes.Items[i]), nodes.Items[i].Name)
		assert.Equal(t, int64(podsPerNode), nodes.Items[i].Status.Allocatable.Pods().Value())
	}
}

func testImageChange(ctx context.Context, t *testing.T, c *Cluster) {
	client := clientOf(t, c)
	deploy(ctx, t, client, "web", 5)
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	require.NoError(t, err)
	require.Len(t, pods.Items, 5)
	name := pods.Items[0].Name

	setImage(ctx, t, client, name, "containers", "sidecar", "sidecar:v2")
	pod := awaitPod(ctx, t, client, name, func(pod *corev1.Pod) bool {
		return ready(pod) && statusOf(pod, "sidecar").Image == "sidecar:v2"
	})
	assert.Equal(t, []string{"app app:v1 sim://app:v1 0", "native native:v1 sim://native:v1 0", "sidecar sidecar:v2 sim://sidecar:v2 1"}, containers(pod))
	assert.Equal(t, pods.Items[0].Status.ContainerStatuses[0], statusOf(pod, "app"), "the app container is not touched")

	setImage(ctx, t, client, name, "initContainers", "native", "native:v2")
	pod = awaitPod(ctx, t, client, name, func(pod *corev1.Pod) bool {
		return ready(pod) && pod.Status.InitContainerStatuses[0].Image == "native:v2"
	})
	assert.Equal(t, []string{"app app:v1 sim://app:v1 0", "native native:v2 sim://native:v2 1", "sidecar sidecar:v2 sim://sidecar:v2 1"}, containers(pod))
	assert.Equal(t, pods.Items[0].Status.ContainerStatuses[0], statusOf(pod, "app"), "the app container is not touched")
}

func testBadImage(ctx context.Context, t *testing.T, c *Cluster) {
	client := clientOf(t, c)
	deploy(ctx, t, client, "bad", 1)
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=bad"})
	require.NoError(t, err)
	name := pods.Items[0].Name

	setImage(ctx, t, client, name, "containers", "sidecar", "sidecar:bad")
	pod := awaitPod(ctx, t, client, name, func(pod *corev1.Pod) bool { return statusOf(pod, "sidecar").State.Waiting != nil })
	assert.False(t, ready(pod))
	assert.Equal(t, "ImagePullBackOff", statusOf(pod, "sidecar").State.Waiting.Reason)
	assert.Equal(t, "sim://sidecar:v1", withoutDigest(statusOf(pod, "sidecar").ImageID))

	setImage(ctx, t, client, name, "containers", "sidecar", "sidecar:v1")
	pod = awaitPod(ctx, t, client, name, ready)
	assert.Equal(t, []string{"app app:v1 sim://app:v1 0", "native native:v1 sim://native:v1 0", "sidecar sidecar:v1 sim://sidecar:v1 1"}, containers(pod))
}

func testKubelets(ctx context.Context, t *testing.T, c *Cluster) {
	pods := clientOf(t, c).CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "slow", Annotations: map[string]string{
		"kwok.outrigger.io/clock-behind": "1h", "kwok.outrigger.io/ready-after": "1s",
	}}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:v1"}, {Name: "sidecar", Image: "sidecar:v1"}}
	pod, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	created := pod.CreationTimestamp
	pod = awaitPod(ctx, t, clientOf(t, c), "slow", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	assert.False(t, ready(pod), "it takes its time")
	pod = awaitPod(ctx, t, clientOf(t, c), "slow", ready)
	late := func(pod *corev1.Pod) time.Duration { return created.Sub(readySince(pod)).Round(time.Hour) }
	assert.Equal(t, time.Hour, late(pod))

	// A change of a pod that is not ready does not change the transition time of its condition.
	setImage(ctx, t, clientOf(t, c), "slow", "containers", "sidecar", "sidecar:bad")
	pod = awaitPod(ctx, t, clientOf(t, c), "slow", func(pod *corev1.Pod) bool { return !ready(pod) })
	unready := readySince(pod)
	_, err = pods.Patch(ctx, "slow", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"kwok.outrigger.io/clock-behind":"2h"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	setImage(ctx, t, clientOf(t, c), "slow", "containers", "sidecar", "sidecar:v2")
	pod = awaitPod(ctx, t, clientOf(t, c), "slow", func(pod *corev1.Pod) bool { return statusOf(pod, "sidecar").Image == "sidecar:v2" })
	assert.False(t, ready(pod))
	assert.Equal(t, unready, readySince(pod))
	pod = awaitPod(ctx, t, clientOf(t, c), "slow", ready)
	assert.Equal(t, 2*time.Hour, late(pod))
}

func testAlias(ctx context.Context, t *testing.T, c *Cluster) {
	client := clientOf(t, c)
	deploy(ctx, t, client, "alias", 1)
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=alias"})
	require.NoError(t, err)
	name, was := pods.Items[0].Name, statusOf(&pods.Items[0], "sidecar").ImageID
	_, digest, _ := strings.Cut(was, "@")
	for i, alias := range []string{"docker.io/library/sidecar:v1", "sidecar:v1@" + digest, "docker.io/library/sidecar:v1@" + digest, "sidecar:v1"} {
		setImage(ctx, t, client, name, "containers", "sidecar", alias)
		pod := awaitPod(ctx, t, client, name, func(pod *corev1.Pod) bool { return ready(pod) && statusOf(pod, "sidecar").Image == alias })
		assert.Equal(t, was, statusOf(pod, "sidecar").ImageID, alias)
		assert.Equal(t, int32(i+1), statusOf(pod, "sidecar").RestartCount, alias)
	}
}

func testCrash(ctx context.Context, t *testing.T, c *Cluster) {
	client := clientOf(t, c)
	deploy(ctx, t, client, "crash", 1)
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=crash"})
	require.NoError(t, err)
	name := pods.Items[0].Name
	_, err = client.CoreV1().Pods("default").Patch(ctx, name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"kwok.outrigger.io/crashed":"app"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	pod := awaitPod(ctx, t, client, name, func(pod *corev1.Pod) bool { return !ready(pod) })
	assert.Equal(t, "CrashLoopBackOff", statusOf(pod, "app").State.Waiting.Reason)
	assert.True(t, statusOf(pod, "sidecar").Ready)
	since := readySince(pod)

	setImage(ctx, t, client, name, "containers", "sidecar", "sidecar:v2")
	pod = awaitPod(ctx, t, client, name, func(pod *corev1.Pod) bool {
		return statusOf(pod, "sidecar").Image == "sidecar:v2" && statusOf(pod, "sidecar").Ready
	})
	assert.False(t, ready(pod))
	assert.Equal(t, since, readySince(pod))
	assert.Equal(t, "CrashLoopBackOff", statusOf(pod, "app").State.Waiting.Reason)
}

func withoutDigest(imageID string) string {
	name, _, _ := strings.Cut(imageID, "@")
	return name
}

func readySince(pod *corev1.Pod) time.Time {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
	return pod.Status.Conditions[i].LastTransitionTime.Time
}

func testRights(ctx context.Context, t *testing.T, c *Cluster) {
	for role, allowed := range map[string]bool{"operator": false, "worker-2": true} {
		config, err := clientcmd.BuildConfigFromFlags("", c.RoleKubeconfig(role))
		require.NoError(t, err)
		client := kubernetes.NewForConfigOrDie(config)
		_, err = client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		assert.Equal(t, allowed, err == nil, role)
		_, err = client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
		assert.True(t, apierrors.IsForbidden(err), role)
	}
}

func testFurtherUser(ctx context.Context, t *testing.T, c *Cluster) {
	kubeconfig, err := c.IssueKubeconfig("system:node:further", "system:nodes")
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	client := kubernetes.NewForConfigOrDie(config)
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, "system:node:further", self.Status.UserInfo.Username)
	assert.Contains(t, self.Status.UserInfo.Groups, "system:nodes")
	_, err = client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	assert.True(t, apierrors.IsForbidden(err), err)
}

func testRoles(ctx context.Context, t *testing.T, c *Cluster) {
	for _, name := range []string{"operator", "worker-1", "worker-2", "webhook"} {
		_, err := c.StartRole(ctx, name, "--log-level=debug")
		require.NoError(t, err)
	}
	_, err := c.StartRole(ctx, "captain")
	require.ErrorContains(t, err, `role "captain" is none of`)
	common := func(role Role) string {
		return fmt.Sprintf(" --kubeconfig=%s --namespace=kruise-system --metrics-bind-address=%s --health-probe-bind-address=%s ",
			c.RoleKubeconfig(role.Name), strings.TrimSuffix(strings.TrimPrefix(role.Metrics, "http://"), "/metrics"),
			strings.TrimPrefix(role.Health, "http://"))
	}
	temporal := "--temporal-address=" + c.TemporalAddress + " --temporal-namespace=default "
	roles := c.Roles()
	require.Len(t, roles, 4)
	_, port, _ := strings.Cut(roles[3].WebhookURL, "https://localhost:")
	want := []string{
		"operator" + common(roles[0]) + temporal + "--temporal-ui-url=" + c.TemporalUI + " --leader-elect=false --log-level=debug",
		"worker" + common(roles[1]) + temporal + "--log-level=debug",
		"worker" + common(roles[2]) + temporal + "--log-level=debug",
		"webhook" + common(roles[3]) + "--url=https://localhost:" + port + " --port=" + port + " --shutdown-delay-duration=0s --log-level=debug",
	}
	for i, role := range roles {
		args, err := os.ReadFile(filepath.Join(c.options.Dir, logsDir, role.Name+".log"))
		require.NoError(t, err)
		assert.Equal(t, want[i]+"\n", string(args))
	}
}

// testKill checks that a killed process keeps its data, and that Deployments still get Ready pods.
func testKill(ctx context.Context, t *testing.T, c *Cluster, name string) {
	client := clientOf(t, c)
	before, err := client.CoreV1().Namespaces().Get(ctx, SystemNamespace, metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, c.Kill(name))
	require.NoError(t, c.StartAgain(ctx, name))
	// The API server reconnects to etcd, but not within one request.
	require.NoError(t, wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		return c.apiServerSpec().Ready(ctx) == nil, nil
	}))
	after, err := client.CoreV1().Namespaces().Get(ctx, SystemNamespace, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, before, after)
	deploy(ctx, t, client, "after-"+name, 2)
}

func testTemporal(ctx context.Context, t *testing.T, c *Cluster) {
	temporal, err := client.NewLazyClient(client.Options{HostPort: c.TemporalAddress})
	require.NoError(t, err)
	defer temporal.Close()
	run, err := temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: "kept", TaskQueue: "nobody",
		SearchAttributes: map[string]any{"SidecarSet": "a", "SidecarSetGeneration": 3, "RolloutPhase": "Running"}, //nolint:staticcheck // untyped is shorter
	}, "Nothing")
	require.NoError(t, err)
	require.NoError(t, c.Kill(Temporal))
	require.NoError(t, c.StartAgain(ctx, Temporal))
	found, err := temporal.DescribeWorkflowExecution(ctx, "kept", "")
	require.NoError(t, err)
	assert.Equal(t, run.GetRunID(), found.WorkflowExecutionInfo.Execution.RunId)
	page, err := http.Get(c.TemporalUI)
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	assert.Equal(t, http.StatusOK, page.StatusCode)
}

func testShutdown(t *testing.T, c *Cluster) {
	processes := c.Processes()
	names := make([]string, 0, len(processes))
	for _, p := range processes {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	require.Equal(t, []string{"apiserver", "controller-manager", "etcd", "kwok", "operator", "scheduler", "temporal", "webhook", "worker-1", "worker-2"}, names)
	assert.Empty(t, c.Exited(), "nothing ended by itself")
	c.Shutdown()
	for _, p := range processes {
		assert.ErrorIs(t, syscall.Kill(p.PID, 0), syscall.ESRCH, p.Name)
	}
}

// testKeptState starts the cluster without nodes and checks that the state of the nodes is kept.
func testKeptState(ctx context.Context, t *testing.T, options Options) {
	options.WithoutNodes = true
	c, err := Start(ctx, options)
	require.NoError(t, err)
	defer c.Shutdown()
	deployment, err := clientOf(t, c).AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, int32(5), deployment.Status.ReadyReplicas)
	_, err = c.Process(KWOK)
	require.ErrorIs(t, err, process.ErrUnknown)
	temporal, err := client.NewLazyClient(client.Options{HostPort: c.TemporalAddress})
	require.NoError(t, err)
	defer temporal.Close()
	_, err = temporal.DescribeWorkflowExecution(ctx, "kept", "")
	require.NoError(t, err)
}

func TestRemoveStateLeavesOtherFilesAlone(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, etcdDir, "member"), 0o755))
	for _, name := range []string{temporalDB, kubeconfigFile, "thesis.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	require.NoError(t, RemoveState(dir))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(dir, "thesis.txt")}, left)
}

func TestStartNamesMissingOptionsAndPrograms(t *testing.T) {
	_, err := Start(t.Context(), Options{})
	require.ErrorContains(t, err, "Dir is required")
	_, err = Start(t.Context(), Options{Dir: t.TempDir(), Bin: t.TempDir()})
	require.ErrorContains(t, err, "program etcd is missing (run tools/build.sh etcd)")
}

func TestAPIServerPortOpensTheAPIServerToOtherMachines(t *testing.T) {
	for port, want := range map[int]string{0: "--bind-address=127.0.0.1", 6443: "--bind-address=0.0.0.0"} {
		c, err := newCluster(Options{Dir: t.TempDir(), APIServerPort: port, WithoutTemporal: true})
		require.NoError(t, err)
		t.Cleanup(c.Shutdown)
		require.NoError(t, c.prepare())
		args := c.apiServerSpec().Args
		assert.Contains(t, args, want)
		assert.Equal(t, port == 6443, slices.Contains(args, "--secure-port=6443"))
		assert.Empty(t, c.TemporalAddress+c.TemporalUI)
	}
}

func TestTwoBlocksOfPortsNeverOverlap(t *testing.T) {
	seen := map[int]bool{}
	for range 2 {
		block, err := claimPorts()
		require.NoError(t, err)
		t.Cleanup(block.release)
		for {
			port, err := block.take()
			if err != nil {
				require.ErrorIs(t, err, errNoPort)
				break
			}
			require.False(t, seen[port], port)
			seen[port] = true
		}
	}
}

func deploy(ctx context.Context, t *testing.T, client kubernetes.Interface, name string, replicas int32) {
	always := corev1.ContainerRestartPolicyAlways
	labels := map[string]string{"app": name}
	_, err := client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					InitContainers: []corev1.Container{{Name: "native", Image: "native:v1", RestartPolicy: &always}},
					Containers:     []corev1.Container{{Name: "app", Image: "app:v1"}, {Name: "sidecar", Image: "sidecar:v1"}},
				},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	deployments := cache.NewListWatchFromClient(client.AppsV1().RESTClient(), "deployments", "default", fields.OneTermEqualSelector("metadata.name", name))
	await(ctx, t, deployments, &appsv1.Deployment{}, func(d *appsv1.Deployment) bool { return d.Status.ReadyReplicas == replicas })
}

// setImage changes a container of a list of the pod's spec.
func setImage(ctx context.Context, t *testing.T, client kubernetes.Interface, pod, list, container, image string) {
	patch := fmt.Sprintf(`{"spec":{%q:[{"name":%q,"image":%q}]}}`, list, container, image)
	_, err := client.CoreV1().Pods("default").Patch(ctx, pod, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

func awaitPod(ctx context.Context, t *testing.T, client kubernetes.Interface, name string, done func(*corev1.Pod) bool) *corev1.Pod {
	pods := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "default", fields.OneTermEqualSelector("metadata.name", name))
	return await(ctx, t, pods, &corev1.Pod{}, done)
}

func await[T runtime.Object](ctx context.Context, t *testing.T, source cache.ListerWatcher, kind T, done func(T) bool) T {
	event, err := watchtools.UntilWithSync(ctx, source, kind, nil, func(event watch.Event) (bool, error) {
		return done(event.Object.(T)), nil
	})
	require.NoError(t, err)
	return event.Object.(T)
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func statusOf(pod *corev1.Pod, container string) corev1.ContainerStatus {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == container {
			return status
		}
	}
	return corev1.ContainerStatus{}
}

// containers renders name, image, image ID and restarts of each container.
func containers(pod *corev1.Pod) []string {
	all := slices.Concat(pod.Status.ContainerStatuses[:1], pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses[1:])
	lines := make([]string, 0, len(all))
	for _, s := range all {
		lines = append(lines, fmt.Sprintf("%s %s %s %d", s.Name, s.Image, withoutDigest(s.ImageID), s.RestartCount))
	}
	return lines
}
