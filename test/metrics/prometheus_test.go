package metrics

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
)

// soon is the timeout for changes that happen without further action of the test.
const soon = 5 * time.Minute

// needsAFault contains the queries that return series only after a fault.
var needsAFault = map[string]string{
	`temporal_request_failure_total{app_kubernetes_io_component=~"operator|worker"}`: "no call fails",
	`outrigger_admissions_total{result="refused"}`:                                   "no pod is rejected",
	`outrigger_webhook_requests_total{code=~"429|5.."}`:                              "no request is rejected",
}

// The test runs each query of the alerts and the dashboard on a Prometheus that has scraped the roles during
// a rollout. Each series must exist, no alert may fire, and each panel must have data.
func TestQueriesOverALiveRollout(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	stack, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Nodes: 1})
	require.NoError(t, err)
	t.Cleanup(stack.Shutdown)
	for role, args := range map[string][]string{
		"operator": nil, "webhook": nil, "worker": nil,
		// This worker belongs to a fleet and has a separate task queue, so the rollouts of the cluster need no
		// permits.
		"worker-fleet": {"--fleet", "--task-queue=fleet-only"},
	} {
		_, err := stack.StartRole(ctx, role, args...)
		require.NoError(t, err)
	}
	queries := startPrometheus(ctx, t, stack.Roles())
	rollOut(ctx, t, stack)

	asked := expressions(t)
	for where, expression := range asked {
		for _, selected := range selectors(expression) {
			if needsAFault[selected] == "" {
				awaitSamples(t, queries, where, "count("+selected+")")
			}
		}
		switch {
		case strings.HasPrefix(where, "alert "):
			// A scrape on an overloaded machine may be late.
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				found, err := ask(ctx, queries, expression)
				require.NoError(c, err)
				assert.Empty(c, found)
			}, soon, time.Second, "%s fires though nothing is wrong", where)
		case needsAFault[selectors(expression)[0]] == "":
			awaitSamples(t, queries, where, expression)
		default:
			_, err := ask(ctx, queries, expression)
			require.NoError(t, err, where)
		}
	}
	for _, fault := range []struct {
		killed string
		alerts []string
	}{
		{cluster.Temporal, []string{"OutriggerEngineDown", "OutriggerFleetDisconnected"}},
		{cluster.Operator, []string{"OutriggerOperatorAbsent"}},
		{cluster.Webhook, []string{"OutriggerWebhookAbsent"}},
		{cluster.Worker, nil},
		{"worker-fleet", []string{"OutriggerWorkerAbsent"}},
	} {
		require.NoError(t, stack.Kill(fault.killed))
		for _, alert := range fault.alerts {
			awaitSamples(t, queries, alert, asked["alert "+alert])
		}
	}
}

// selectors returns the selectors of an expression, which are names with matchers.
func selectors(expression string) (all []string) {
	for _, found := range selector.FindAllStringSubmatch(grouping.ReplaceAllString(expression, ""), -1) {
		if found[1] != "histogram_quantile" {
			all = append(all, strings.TrimSpace(found[0]))
		}
	}
	return all
}

func ask(ctx context.Context, queries prometheus.API, expression string) (model.Vector, error) {
	value, warnings, _, err := queries.Query(ctx, expression, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expression, err)
	}
	if len(warnings) > 0 {
		return nil, fmt.Errorf("%s: %q", expression, warnings)
	}
	found, ok := value.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("%s is not a vector but a %s", expression, value.Type())
	}
	return found, nil
}

// awaitSamples waits until the result contains a number. A rate needs two scrapes, and the check of a
// connection to a fleet takes up to 20 seconds.
func awaitSamples(t *testing.T, queries prometheus.API, where, expression string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		found, err := ask(t.Context(), queries, expression)
		require.NoError(c, err)
		numbers := 0
		for _, sample := range found {
			if !math.IsNaN(float64(sample.Value)) {
				numbers++
			}
		}
		assert.NotZero(c, numbers, "%v", found)
	}, soon, 200*time.Millisecond, "%s: %s", where, expression)
}

// startPrometheus starts a Prometheus that scrapes the roles every three seconds, and returns a client.
func startPrometheus(ctx context.Context, t *testing.T, roles []cluster.Role) prometheus.API {
	t.Helper()
	program, err := filepath.Abs("../../bin/prometheus")
	require.NoError(t, err)
	require.FileExists(t, program, "run tools/build.sh prometheus")
	dir := t.TempDir()
	config := "global: {scrape_interval: 3s, scrape_timeout: 3s}\nscrape_configs:\n"
	for _, role := range roles {
		target, err := url.Parse(role.Metrics)
		require.NoError(t, err)
		component, _, _ := strings.Cut(role.Name, "-") // as the PodMonitor does
		config += fmt.Sprintf("- {job_name: %[1]s, static_configs: [{targets: [%[2]q], labels: {pod: %[1]s, app_kubernetes_io_component: %[3]s}}]}\n", role.Name, target.Host, component)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644))
	address := freeAddress(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	server := exec.CommandContext(ctx, program, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	server.Stdout, server.Stderr = log, log
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		_ = server.Wait()
	})
	asking, err := api.NewClient(api.Config{Address: "http://" + address})
	require.NoError(t, err)
	queries := prometheus.NewAPI(asking)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		up, err := ask(ctx, queries, "sum(up)")
		require.NoError(c, err)
		require.Len(c, up, 1)
		assert.Equal(c, len(roles), int(up[0].Value))
	}, soon, 100*time.Millisecond, "Prometheus does not scrape every role; see %s", log.Name())
	return queries
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// rollOut injects a sidecar into several pods and changes the image of the sidecar.
func rollOut(ctx context.Context, t *testing.T, stack *cluster.Cluster) {
	t.Helper()
	config, err := stack.RESTConfig()
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	kubernetes, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	const pods = 6
	labels := map[string]string{"app": "nginx"}
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "agent", Image: "agent:v1"}}}
	set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(2))
	require.NoError(t, kubernetes.Create(ctx, set))
	require.Eventually(t, func() bool {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe", Labels: labels}}
		probe.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
		return kubernetes.Create(ctx, probe, client.DryRunAll) == nil && len(probe.Spec.Containers) == 2
	}, soon, 100*time.Millisecond, "the webhook does not observe the SidecarSet")
	require.NoError(t, kubernetes.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nginx"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(pods)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
			},
		},
	}))
	converged := func(c *assert.CollectT) {
		require.NoError(c, kubernetes.Get(ctx, client.ObjectKeyFromObject(set), set))
		assert.Equal(c, set.Generation, set.Status.ObservedGeneration)
		assert.EqualValues(c, pods, set.Status.UpdatedReadyPods)
	}
	require.EventuallyWithT(t, converged, soon, 100*time.Millisecond)
	patch := []byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"agent:v2"}]`)
	require.NoError(t, kubernetes.Patch(ctx, set, client.RawPatch("application/json-patch+json", patch)))
	require.EventuallyWithT(t, converged, soon, 100*time.Millisecond)
}
