package webhook_test

import (
	"context"
	"fmt"
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

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/webhook"
)

// TestWebhook walks one webhook, with the rights that config/rbac gives it,
// through its life on a real API server.
func TestWebhook(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Nodes: 1, Manifests: []string{olderDefinition(t), "../config/rbac"}})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	s := &scene{ctx: ctx, cluster: c, admin: admin(t, c)}
	s.storeOlderSets(t)
	s.stop = startWebhook(t, ctx, c)

	t.Run("SetsAreStoredWithDefaultsHashesAndUnknownFields", s.defaults)
	t.Run("RefusalsAre422AndKubectlPrintsTheField", s.refusals)
	t.Run("ConflictsWithASetStoredAMomentAgoAreRefused", s.conflicts)
	t.Run("SetsStoredUnderOlderRulesCanBePaused", s.olderSets)
	t.Run("PodsAreInjected", s.injection)
	t.Run("PodsOfANamespaceCreatedAMomentAgoAreInjected", s.newNamespace)
	t.Run("NamespacesWithInjectionDisabledAreLeftAlone", s.disabledNamespace)
	t.Run("OfTheConfigurationsOnlyItsOwnPartIsWritten", s.configurationsShared)
	t.Run("ALostSecretIsReplacedAndServed", s.lostSecret)
	t.Run("NodeCriticalPodsAreCreatedWhileTheWebhookIsAway", s.nodeCritical)
}

type scene struct {
	ctx     context.Context
	cluster *cluster.Cluster
	admin   client.Client
	// stop ends the webhook.
	stop func()
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

func startWebhook(t *testing.T, ctx context.Context, c *cluster.Cluster) (end func()) {
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
	await(t, ctx, func() (bool, error) {
		select {
		case err := <-ended:
			ended <- err
			return false, fmt.Errorf("webhook ended: %w", err)
		default:
		}
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", health))
		if err != nil {
			return false, nil
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	})
	return end
}

// quiet drops logs: what matters is asserted.
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

func (s *scene) kubectl(stdin string, args ...string) (string, error) {
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

func (s *scene) defaults(t *testing.T) {
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

func (s *scene) refusals(t *testing.T) {
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

func (s *scene) conflicts(t *testing.T) {
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

// injected waits until the webhook has seen the newest sets, and returns the
// names of a new pod's containers.
func (s *scene) injected(t *testing.T, namespace, app string, want ...string) *corev1.Pod {
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

func (s *scene) injection(t *testing.T) {
	require.NoError(t, s.admin.Create(s.ctx, sidecarSet("inject-b", "inject", "b")))
	require.NoError(t, s.admin.Create(s.ctx, sidecarSet("inject-a", "inject", "a")))
	made := s.injected(t, metav1.NamespaceDefault, "inject", "a", "b", "app")
	assert.Equal(t, "inject-a,inject-b", made.Annotations[v1alpha1.InjectedListAnnotation])
	assert.Equal(t, []corev1.EnvVar{{Name: "IS_INJECTED", Value: "true"}}, made.Spec.Containers[0].Env)
	s.injected(t, metav1.NamespaceDefault, "nobody", "app")
}

func (s *scene) newNamespace(t *testing.T) {
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

func (s *scene) createNamespace(t *testing.T, name string, labels map[string]string) {
	require.NoError(t, s.admin.Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
	// Without its service account no pod is admitted, sidecars or not.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: name}}
	if err := s.admin.Create(s.ctx, account); !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
}

func (s *scene) disabledNamespace(t *testing.T) {
	s.createNamespace(t, "disabled", map[string]string{v1alpha1.InjectionLabel: v1alpha1.InjectionDisabled})
	s.injected(t, metav1.NamespaceDefault, "inject", "a", "b", "app")
	s.injected(t, "disabled", "inject", "app")
	s.injected(t, cluster.SystemNamespace, "inject", "app")
}

func (s *scene) configurationsShared(t *testing.T) {
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

	// What is gone is for whoever installs to put back; then it is asked again.
	require.NoError(t, s.admin.Delete(s.ctx, &live))
	require.NoError(t, s.cluster.InstallWebhooks(s.ctx, "https://localhost:1"))
	await(t, s.ctx, is(original.Webhooks))
	s.injected(t, metav1.NamespaceDefault, "inject", "a", "b", "app")
}

// A cluster whose webhook is away can still bring up its nodes.
func (s *scene) nodeCritical(t *testing.T) {
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
	for namespace, class := range map[string]string{"kube-system": "system-cluster-critical", "kube-system-too": "system-node-critical", "default": ""} {
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

func (s *scene) lostSecret(t *testing.T) {
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
