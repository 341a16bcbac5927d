package webhook_test

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/webhook"
)

// TestWebhook runs a webhook with the permissions of config/rbac against a real API server.
func TestWebhook(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Nodes: 1, Manifests: []string{olderDefinition(t), "../config/rbac"}})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	s := &environment{ctx: ctx, cluster: c, admin: admin(t, c)}
	s.storeOlderSets(t)
	s.stop, s.readyz = startWebhook(t, ctx, c)

	t.Run("SetsAreStoredWithDefaultsHashesAndUnknownFields", s.defaults)
	t.Run("RejectionsAre422AndKubectlPrintsTheField", s.rejections)
	t.Run("ConflictsWithASetStoredAMomentAgoAreRejected", s.conflicts)
	t.Run("TheRemedyOfOutdatedHashesRenewsThem", s.outdatedHashes)
	t.Run("SetsStoredUnderOlderRulesCanBePaused", s.olderSets)
	t.Run("PodsAreInjected", s.injection)
	t.Run("PodsOfANamespaceCreatedAMomentAgoAreInjected", s.newNamespace)
	t.Run("NamespacesWithInjectionDisabledAreLeftAlone", s.disabledNamespace)
	t.Run("RolloutPoliciesAreUsedOnceTheirDefinitionIsInstalled", s.policiesAppear)
	t.Run("OfTheConfigurationsOnlyItsOwnPartIsWritten", s.configurationsShared)
	t.Run("ALostSecretIsReplacedAndServed", s.lostSecret)
	t.Run("StaysReadyWhileTheAPIServerIsAway", s.apiServerAway)
	t.Run("CriticalPodsAreCreatedWhileTheWebhookIsAway", s.criticalPods)
}

type environment struct {
	ctx     context.Context
	cluster *cluster.Cluster
	admin   client.Client
	// stop stops the webhook.
	stop func()
	// readyz is the URL of the readiness check.
	readyz string
}

func admin(t *testing.T, c *cluster.Cluster) client.Client {
	config, err := c.RESTConfig()
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	require.NoError(t, admissionregistrationv1.AddToScheme(scheme))
	made, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return made
}

func startWebhook(t *testing.T, ctx context.Context, c *cluster.Cluster) (end func(), readyz string) {
	log := testr.NewWithInterface(quiet{}, testr.Options{})
	ctrllog.SetLogger(log)
	port, health := freePort(t), freePort(t)
	url := fmt.Sprintf("https://localhost:%d", port)
	require.NoError(t, c.InstallWebhooks(ctx, url))
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- webhook.Run(ctx, webhook.Options{
			Options: kube.Options{
				Kubeconfig: c.RoleKubeconfig(cluster.Webhook), SystemNamespace: cluster.SystemNamespace,
				QPS: 200, Burst: 400, MetricsAddress: "0", HealthAddress: fmt.Sprintf("127.0.0.1:%d", health), Logger: log,
			},
			Port: port, URL: url, ServiceName: "outrigger-webhook",
		})
	}()
	end = sync.OnceFunc(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(end)
	readyz = fmt.Sprintf("http://127.0.0.1:%d/readyz", health)
	await(t, ctx, func() (bool, error) {
		select {
		case err := <-ended:
			ended <- err
			return false, fmt.Errorf("webhook ended: %w", err)
		default:
		}
		response, err := http.Get(readyz)
		if err != nil {
			return false, nil
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
	return end, readyz
}

// quiet drops logs.
type quiet struct{}

func (quiet) Helper()    {}
func (quiet) Log(...any) {}

func freePort(t *testing.T) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func await(t *testing.T, ctx context.Context, done func() (bool, error)) {
	t.Helper()
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return done() })
	require.NoError(t, err)
}

func (s *environment) kubectl(stdin string, args ...string) (string, error) {
	command := exec.CommandContext(s.ctx, "../bin/kubectl", append([]string{"--kubeconfig", s.cluster.Kubeconfig}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	return string(out), err
}

const stored = `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: stored}
spec:
  selector: {matchLabels: {app: stored}}
  namespace: kube-public
  containers:
  - name: side
    image: busybox:1.36
    futureField: {deep: [1, 2]}
    volumeMounts: [{name: known, mountPath: /a}, {name: future, mountPath: /b}]
  volumes:
  - {name: known}
  - {name: future, futureSource: {handle: x}}
`

func (s *environment) defaults(t *testing.T) {
	out, err := s.kubectl(stored, "apply", "-f", "-")
	require.NoError(t, err, out)
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SidecarSet"))
	require.NoError(t, s.admin.Get(s.ctx, client.ObjectKey{Name: "stored"}, set))
	assert.Len(t, set.GetAnnotations()[v1alpha1.HashAnnotation], 64)
	assert.Len(t, set.GetAnnotations()[v1alpha1.HashWithoutImageAnnotation], 64)
	assert.Equal(t, map[string]any{
		"selector":  map[string]any{"matchLabels": map[string]any{"app": "stored"}},
		"namespace": "kube-public",
		"containers": []any{map[string]any{
			"name": "side", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent", "resources": map[string]any{},
			"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
			"podInjectPolicy": "BeforeAppContainer", "upgradeStrategy": map[string]any{"upgradeType": "ColdUpgrade"},
			"shareVolumePolicy": map[string]any{"type": "disabled"},
			"futureField":       map[string]any{"deep": []any{int64(1), int64(2)}},
			"volumeMounts": []any{
				map[string]any{"name": "known", "mountPath": "/a"}, map[string]any{"name": "future", "mountPath": "/b"},
			},
		}},
		"volumes": []any{
			map[string]any{"name": "known", "emptyDir": map[string]any{}},
			map[string]any{"name": "future", "futureSource": map[string]any{"handle": "x"}},
		},
		"injectionStrategy": map[string]any{}, "revisionHistoryLimit": int64(10),
		"updateStrategy": map[string]any{"type": "RollingUpdate", "partition": int64(0), "maxUnavailable": int64(1)},
	}, set.Object["spec"])
	before := set.GetResourceVersion()
	_, err = s.kubectl(stored, "apply", "-f", "-")
	require.NoError(t, err)
	require.NoError(t, s.admin.Get(s.ctx, client.ObjectKey{Name: "stored"}, set))
	assert.Equal(t, before, set.GetResourceVersion(), "a second apply changes nothing")
}

func sidecarSet(name, app string, containers ...string) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	for _, container := range containers {
		set.Spec.Containers = append(set.Spec.Containers, v1alpha1.SidecarContainer{
			Container: corev1.Container{Name: container, Image: "side:v1"},
		})
	}
	return set
}

func (s *environment) rejections(t *testing.T) {
	set := sidecarSet("refused", "refused", "side")
	set.Spec.Selector = nil
	set.Spec.Containers[0].Image = ""
	err := s.admin.Create(s.ctx, set)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	var fields []string
	for _, cause := range err.(apierrors.APIStatus).Status().Details.Causes {
		fields = append(fields, cause.Field)
	}
	assert.Equal(t, []string{"spec.selector", "spec.containers[0].image"}, fields)

	out, err := s.kubectl(`
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: refused}
spec: {selector: {matchLabels: {app: x}}}
`, "apply", "-f", "-")
	require.Error(t, err)
	assert.Contains(t, out, `The SidecarSet "refused" is invalid: spec.containers: Required value`)

	out, err = s.kubectl(`
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: refused}
spec: {selector: {matchLabels: {app: x}}, containers: [{name: 5, image: x}]}
`, "apply", "-f", "-")
	require.Error(t, err)
	assert.Contains(t, out, `The SidecarSet "refused" is invalid: spec.containers`)
	assert.Contains(t, out, "want string")
}

func (s *environment) conflicts(t *testing.T) {
	require.NoError(t, s.admin.Create(s.ctx, sidecarSet("first", "conflict", "same")))
	err := s.admin.Create(s.ctx, sidecarSet("second", "conflict", "same"))
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	assert.ErrorContains(t, err, "SidecarSet first")
	require.NoError(t, s.admin.Create(s.ctx, sidecarSet("third", "elsewhere", "same")))
}

func pod(namespace, app string) *corev1.Pod {
	made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: app + "-", Namespace: namespace, Labels: map[string]string{"app": app}}}
	made.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:v1"}}
	return made
}

// injected waits until a new pod has the wanted number of containers, and checks the names of the
// containers.
func (s *environment) injected(t *testing.T, namespace, app string, want ...string) *corev1.Pod {
	var made *corev1.Pod
	await(t, s.ctx, func() (bool, error) {
		made = pod(namespace, app)
		if err := s.admin.Create(s.ctx, made, client.DryRunAll); err != nil {
			return false, err
		}
		return len(made.Spec.Containers) == len(want), nil
	})
	var names []string
	for _, container := range made.Spec.Containers {
		names = append(names, container.Name)
	}
	assert.Equal(t, want, names)
	return made
}

func (s *environment) injection(t *testing.T) {
	require.NoError(t, s.admin.Create(s.ctx, sidecarSet("inject-b", "inject", "b")))
	require.NoError(t, s.admin.Create(s.ctx, sidecarSet("inject-a", "inject", "a")))
	made := s.injected(t, metav1.NamespaceDefault, "inject", "a", "b", "app")
	assert.Equal(t, "inject-a,inject-b", made.Annotations[v1alpha1.InjectedListAnnotation])
	assert.Equal(t, []corev1.EnvVar{{Name: "IS_INJECTED", Value: "true"}}, made.Spec.Containers[0].Env)
	s.injected(t, metav1.NamespaceDefault, "nobody", "app")
}

func (s *environment) newNamespace(t *testing.T) {
	set := sidecarSet("by-namespace", "by-namespace", "side")
	set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	require.NoError(t, s.admin.Create(s.ctx, set))
	s.createNamespace(t, "seen", map[string]string{"env": "prod"})
	s.injected(t, "seen", "by-namespace", "side", "app")
	for i := range 20 {
		name := fmt.Sprintf("new-%d", i)
		s.createNamespace(t, name, map[string]string{"env": "prod"})
		made := pod(name, "by-namespace")
		require.NoError(t, s.admin.Create(s.ctx, made, client.DryRunAll))
		assert.Len(t, made.Spec.Containers, 2)
	}
}

func (s *environment) createNamespace(t *testing.T, name string, labels map[string]string) {
	require.NoError(t, s.admin.Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
	// The API server rejects a pod if the namespace lacks the default service account.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: name}}
	if err := s.admin.Create(s.ctx, account); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
}

func (s *environment) disabledNamespace(t *testing.T) {
	s.createNamespace(t, "disabled", map[string]string{v1alpha1.InjectionLabel: v1alpha1.InjectionDisabled})
	s.injected(t, metav1.NamespaceDefault, "inject", "a", "b", "app")
	s.injected(t, "disabled", "inject", "app")
	s.injected(t, cluster.SystemNamespace, "inject", "app")
}

func (s *environment) configurationsShared(t *testing.T) {
	key := client.ObjectKey{Name: "outrigger"}
	var original, live admissionregistrationv1.MutatingWebhookConfiguration
	require.NoError(t, s.admin.Get(s.ctx, key, &original))
	changed := original.DeepCopy()
	changed.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
	changed.Webhooks[0].TimeoutSeconds = new(int32(7))
	changed.Webhooks[0].ClientConfig.CABundle = nil
	changed.Webhooks[1].ClientConfig.URL = new("https://localhost:1")
	require.NoError(t, s.admin.Update(s.ctx, changed))
	changed.Webhooks[0].ClientConfig, changed.Webhooks[1].ClientConfig = original.Webhooks[0].ClientConfig, original.Webhooks[1].ClientConfig
	is := func(want []admissionregistrationv1.MutatingWebhook) func() (bool, error) {
		return func() (bool, error) {
			err := s.admin.Get(s.ctx, key, &live)
			return err == nil && assert.ObjectsAreEqual(want, live.Webhooks), client.IgnoreNotFound(err)
		}
	}
	await(t, s.ctx, is(changed.Webhooks))

	// The installer recreates a deleted configuration, and the webhook activates it.
	require.NoError(t, s.admin.Delete(s.ctx, &live))
	require.NoError(t, s.cluster.InstallWebhooks(s.ctx, "https://localhost:1"))
	await(t, s.ctx, is(original.Webhooks))
	s.injected(t, metav1.NamespaceDefault, "inject", "a", "b", "app")
}

// An outage of the API server affects all replicas. If an outage made the replicas unready, pods would be
// rejected for some time after the outage.
func (s *environment) apiServerAway(t *testing.T) {
	const outage = 12 // seconds
	require.NoError(t, s.cluster.Kill(cluster.APIServer))
	await(t, s.ctx, func() (bool, error) {
		return shortestWatchDown(t) > outage, nil
	})
	response, err := http.Get(s.readyz)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusOK, response.StatusCode)
	require.NoError(t, s.cluster.StartAgain(s.ctx, cluster.APIServer))
	await(t, s.ctx, func() (bool, error) {
		return s.admin.Create(s.ctx, pod(metav1.NamespaceDefault, "inject"), client.DryRunAll) == nil, nil
	})
	s.injected(t, metav1.NamespaceDefault, "inject", "a", "b", "app")
}

// shortestWatchDown returns the number of seconds for which all watches have been down.
func shortestWatchDown(t *testing.T) float64 {
	families, err := metrics.Registry.Gather()
	require.NoError(t, err)
	shortest := 0.0
	for _, family := range families {
		if family.GetName() == "outrigger_watch_down_seconds" {
			shortest = math.Inf(1)
			for _, one := range family.GetMetric() {
				shortest = min(shortest, one.GetGauge().GetValue())
			}
		}
	}
	return shortest
}

// A node must be able to join the cluster while no webhook is running.
func (s *environment) criticalPods(t *testing.T) {
	s.createNamespace(t, "kube-system-too", nil)
	critical := func(namespace, class string) error {
		made := pod(namespace, "inject")
		made.Spec.PriorityClassName = class
		return s.admin.Create(s.ctx, made, client.DryRunAll)
	}
	var live admissionregistrationv1.MutatingWebhookConfiguration
	require.NoError(t, s.admin.Get(s.ctx, client.ObjectKey{Name: "outrigger"}, &live))
	s.stop()
	require.NoError(t, critical("kube-system", "system-node-critical"))
	require.NoError(t, critical("kube-system", "system-cluster-critical"))
	for namespace, class := range map[string]string{"kube-system": "", "kube-system-too": "system-node-critical", "default": ""} {
		require.ErrorContains(t, critical(namespace, class), "failed calling webhook", "%s in %s", class, namespace)
	}
	config, err := s.cluster.RESTConfig()
	require.NoError(t, err)
	clientset, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	metrics, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(s.ctx)
	require.NoError(t, err)
	assert.Regexp(t, `apiserver_admission_match_condition_exclusions_total\{[^}]*name="pods.outrigger.io"[^}]*\} [1-9]`, string(metrics))
}

func (s *environment) lostSecret(t *testing.T) {
	key := client.ObjectKey{Namespace: cluster.SystemNamespace, Name: "outrigger-webhook-cert"}
	var secret corev1.Secret
	require.NoError(t, s.admin.Get(s.ctx, key, &secret))
	before := string(secret.Data["ca.crt"])
	require.NoError(t, s.admin.Delete(s.ctx, &secret))
	var configuration admissionregistrationv1.ValidatingWebhookConfiguration
	await(t, s.ctx, func() (bool, error) {
		err := s.admin.Get(s.ctx, client.ObjectKey{Name: "outrigger"}, &configuration)
		return err == nil && string(configuration.Webhooks[0].ClientConfig.CABundle) != before, err
	})
	await(t, s.ctx, func() (bool, error) {
		return s.admin.Create(s.ctx, pod(metav1.NamespaceDefault, "inject"), client.DryRunAll) == nil, nil
	})
	s.injected(t, metav1.NamespaceDefault, "inject", "a", "b", "app")
}
