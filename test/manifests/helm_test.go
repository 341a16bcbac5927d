package manifests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger/outrigger/dev/cluster"
)

// bare is a cluster in which Outrigger is not installed yet. A client continuously creates pods in the
// cluster.
type bare struct {
	t       *testing.T
	cluster *cluster.Cluster
	client  kubernetes.Interface
	service *service
	pods    *stream
	roles   int
}

func newBare(t *testing.T, options cluster.Options) *bare {
	t.Helper()
	options.Dir, options.Nodes, options.Manifests = t.TempDir(), 2, []string{}
	c, err := cluster.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	client := clientOf(t, c)
	return &bare{t: t, cluster: c, client: client, service: newService(t, client), pods: newStream(t, client, 2)}
}

func (b *bare) helm(args ...string) string {
	b.t.Helper()
	out, err := output(b.t, "helm", append(args, "--kubeconfig="+b.cluster.Kubeconfig, "--namespace=kruise-system", "--timeout=2m")...)
	require.NoError(b.t, err, out)
	return out
}

// goHelm starts Helm. When Helm ends, the channel receives the error of Helm, or nil.
func (b *bare) goHelm(args ...string) <-chan error {
	b.t.Helper()
	ended := make(chan error, 1)
	go func() {
		out, err := output(b.t, "helm", append(args, "--kubeconfig="+b.cluster.Kubeconfig, "--namespace=kruise-system", "--wait", "--timeout=2m")...)
		if err != nil {
			err = fmt.Errorf("%s: %w", out, err)
		}
		ended <- err
	}()
	return ended
}

func (b *bare) await(what string, done func() bool) {
	b.t.Helper()
	b.pods.await(b.t, what, done)
}

// signIn writes a kubeconfig of a service account to a file.
func (b *bare) signIn(account, file string) {
	b.t.Helper()
	admin, err := os.ReadFile(b.cluster.Kubeconfig)
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(file, admin, 0o600))
	token := kubectl(b.t, b.cluster, "", "create", "token", account, "--namespace=kruise-system")
	for _, args := range [][]string{
		{"config", "set-credentials", account, "--token=" + strings.TrimSpace(token)},
		{"config", "set-context", "--current", "--user=" + account},
	} {
		out, err := output(b.t, "kubectl", append(args, "--kubeconfig="+file)...)
		require.NoError(b.t, err, out)
	}
}

// serve starts a webhook for the installed configuration, and waits until sidecars are injected into pods.
func (b *bare) serve() {
	b.t.Helper()
	b.signIn("outrigger-webhook", b.cluster.RoleKubeconfig(cluster.Webhook))
	kubectl(b.t, b.cluster, "", "patch", "service", "outrigger-webhook", "--namespace=kruise-system", "--type=merge",
		`--patch={"spec":{"type":"ExternalName","externalName":"localhost","selector":null}}`)
	port := func(webhooks ...int) string {
		var operations []string
		for _, i := range webhooks {
			operations = append(operations, fmt.Sprintf(`{"op":"replace","path":"/webhooks/%d/clientConfig/service/port","value":%d}`, i, b.service.port))
		}
		return "[" + strings.Join(operations, ",") + "]"
	}
	kubectl(b.t, b.cluster, "", "patch", "mutatingwebhookconfiguration", "outrigger", "--type=json", "--patch="+port(0, 1))
	kubectl(b.t, b.cluster, "", "patch", "validatingwebhookconfiguration", "outrigger", "--type=json", "--patch="+port(0))
	b.roles++
	b.service.start(b.cluster, fmt.Sprintf("webhook-%d", b.roles))
	before := b.pods.injected.Load()
	b.await("a set to be taken", func() bool {
		_, err := tryKubectl(b.t, b.cluster, streamSet, "apply", "-f", "-")
		return err == nil
	})
	b.await("pods to be injected", func() bool { return b.pods.injected.Load() > before+20 })
}

// stopServing stops the webhook when the webhook configurations are deleted. If failed receives an error, the
// test fails.
func (b *bare) stopServing(failed <-chan error) {
	b.t.Helper()
	b.await("the configurations to go", func() bool {
		select {
		case err := <-failed:
			require.NoError(b.t, err)
		default:
		}
		ctx, name := b.t.Context(), "outrigger"
		_, mutating := b.client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		_, validating := b.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(mutating) && apierrors.IsNotFound(validating)
	})
	require.NoError(b.t, b.cluster.Stop(fmt.Sprintf("webhook-%d", b.roles)))
}

// assertLeft asserts that SidecarSets can be read and written, that RolloutPolicies exist, and that no
// webhook configuration exists.
func (b *bare) assertLeft() {
	b.t.Helper()
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		image := kubectl(b.t, b.cluster, "", "get", "sidecarsets."+version+".apps.kruise.io", "stream", "--output=jsonpath={.spec.containers[0].image}")
		assert.Equal(b.t, "side:v1", image)
	}
	kubectl(b.t, b.cluster, "", "label", "sidecarset", "stream", "touched=yes", "--overwrite")
	assert.Equal(b.t, "rolloutpolicy.outrigger.io/stream", strings.TrimSpace(kubectl(b.t, b.cluster, "", "get", "rolloutpolicies", "--output=name")))
	for _, kind := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "clusterroles", "clusterrolebindings"} {
		assert.NotContains(b.t, kubectl(b.t, b.cluster, "", "get", kind, "--output=name"), "outrigger")
	}
	kubectl(b.t, b.cluster, "", "wait", "--for=delete", "namespace/outrigger-validation", "--timeout=60s")
	left := kubectl(b.t, b.cluster, "", "get", "deployments,pods,services,jobs,roles,rolebindings,poddisruptionbudgets,networkpolicies", "--namespace=kruise-system", "--output=name")
	assert.Empty(b.t, left)
	injected := b.pods.created.Load()
	b.await("pods to be created without a webhook", func() bool { return b.pods.created.Load() > injected+20 })
}

const streamSet = `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: stream}
spec: {selector: {matchLabels: {app: stream}}, containers: [{name: side, image: "side:v1"}]}
`

const streamPolicy = `
apiVersion: outrigger.io/v1alpha1
kind: RolloutPolicy
metadata: {name: stream}
spec: {selector: {}, steps: [{upTo: 10%}]}
`

// playHook simulates the kubelet of the pod of the pre-delete hook. playHook runs the command of the pod with
// the service account of the pod.
func (b *bare) playHook() {
	b.t.Helper()
	pod := b.podOf("outrigger-uninstall")
	kubeconfig := b.t.TempDir() + "/kubeconfig"
	b.signIn(pod.Spec.ServiceAccountName, kubeconfig)
	command := exec.CommandContext(b.t.Context(), "../../bin/outrigger", append(pod.Spec.Containers[0].Args, "--kubeconfig="+kubeconfig)...)
	// A finalizer keeps the pod while the process runs.
	b.holdPods(`["example.com/kubelet"]`)
	ended := make(chan error, 1)
	go func() {
		out, err := command.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s: %w", out, err)
		}
		ended <- err
	}()
	b.stopServing(ended)
	b.holdPods("null")
	require.NoError(b.t, <-ended)
	b.succeed(pod)
}

// playTest runs the command of the pod of `helm test` with the service account of the pod. Of the roles, only
// the webhook runs.
func (b *bare) playTest() {
	b.t.Helper()
	tested := make(chan error, 1)
	go func() {
		out, err := output(b.t, "helm", "test", "outrigger", "--kubeconfig="+b.cluster.Kubeconfig, "--namespace=kruise-system", "--timeout=2m")
		if err != nil {
			err = fmt.Errorf("%s: %w", out, err)
		}
		tested <- err
	}()
	pod := b.podOf("outrigger-test")
	kubeconfig := b.t.TempDir() + "/kubeconfig"
	b.signIn(pod.Spec.ServiceAccountName, kubeconfig)
	out, err := exec.CommandContext(b.t.Context(), "../../bin/outrigger", append(pod.Spec.Containers[0].Args, "--kubeconfig="+kubeconfig, "--temporal-address=127.0.0.1:1")...).CombinedOutput()
	require.Error(b.t, err)
	shown := string(out)
	// No process converts SidecarSets in this cluster.
	assert.Regexp(b.t, `(?m)^definition +failed +the webhook that converts SidecarSets does not respond`, shown)
	assert.Regexp(b.t, `(?m)^policies +ok `, shown)
	assert.Regexp(b.t, `(?m)^webhook +ok +answers for pods of namespace default$`, shown)
	assert.Regexp(b.t, `(?m)^operator +failed +the operator did not observe generation 1 of SidecarSet stream`, shown)
	assert.Regexp(b.t, `(?m)^temporal +failed `, shown)
	assert.Contains(b.t, shown, "outrigger: failed: definition, operator, temporal\n")
	assert.NotContains(b.t, shown, "not allowed")
	b.succeed(pod)
	require.NoError(b.t, <-tested)
	_, err = b.client.RbacV1().Roles("default").Get(b.t.Context(), "outrigger-test-pods", metav1.GetOptions{})
	assert.True(b.t, apierrors.IsNotFound(err), "the permission to create pods stays only during the test")
}

func (b *bare) holdPods(finalizers string) {
	b.t.Helper()
	pods := strings.Fields(kubectl(b.t, b.cluster, "", "get", "pods", "--selector=app.kubernetes.io/component=webhook", "--namespace=kruise-system", "--output=name"))
	require.NotEmpty(b.t, pods)
	args := append([]string{"patch", "--namespace=kruise-system", "--type=merge", `--patch={"metadata":{"finalizers":` + finalizers + `}}`}, pods...)
	kubectl(b.t, b.cluster, "", args...)
}

// The test creates pods continuously, and asserts that no pod is rejected.
func TestHelmInstallsUpgradesAndUninstalls(t *testing.T) {
	t.Parallel()
	b := newBare(t, cluster.Options{WithoutTemporal: true})
	release := packaged(t)
	// The simulated nodes have no volumes.
	optional := "--set=networkPolicy.enabled=true,temporal.embedded.enabled=true,temporal.embedded.storage.size="
	b.helm("install", "outrigger", release, "--create-namespace", "--wait", optional)
	b.assertRights()
	certificate := func() string {
		return kubectl(t, b.cluster, "", "get", "secret", "outrigger-temporal-tls", "--namespace=kruise-system", "--output=jsonpath={.data}")
	}
	installed := certificate()
	b.helm("upgrade", "outrigger", release, "--wait", optional, "--set=webhook.replicas=3,worker.args={--max-unavailable-pods=10}")
	assert.Equal(t, installed, certificate(), "an upgrade keeps the certificate of Temporal")
	b.helm("upgrade", "outrigger", release, "--wait", optional)
	b.serve()
	b.playTest()
	kubectl(t, b.cluster, streamPolicy, "apply", "-f", "-")

	uninstalled := b.goHelm("uninstall", "outrigger")
	b.playHook()
	require.NoError(t, <-uninstalled)
	b.assertLeft()

	b.helm("install", "outrigger", release, "--wait")
	b.serve()
	require.NoError(t, b.pods.end())
	t.Logf("%d pods were created, 0 rejected; %d got their sidecar", b.pods.created.Load(), b.pods.injected.Load())
}

// assertRights asserts that a ClusterRoleBinding of edit permits writes of SidecarSets, and that a
// RoleBinding does not permit such writes.
func (b *bare) assertRights() {
	b.t.Helper()
	kubectl(b.t, b.cluster, "", "create", "clusterrolebinding", "ann", "--clusterrole=edit", "--user=ann")
	kubectl(b.t, b.cluster, "", "create", "clusterrolebinding", "bob", "--clusterrole=view", "--user=bob")
	kubectl(b.t, b.cluster, "", "create", "rolebinding", "eve", "--clusterrole=admin", "--user=eve", "--namespace=default")
	may := func(who, verb string) bool {
		_, err := tryKubectl(b.t, b.cluster, "", "auth", "can-i", verb, "sidecarsets.apps.kruise.io", "--all-namespaces", "--as="+who)
		return err == nil
	}
	b.await("the permissions to be aggregated", func() bool { return may("ann", "create") && may("ann", "delete") && may("bob", "list") })
	assert.False(b.t, may("bob", "create"))
	assert.False(b.t, may("eve", "list"))
	assert.False(b.t, may("eve", "create"))
}

// The test runs the commands in docs/install.md.
func TestKubectlInstallsAndUninstallsAsDocumented(t *testing.T) {
	t.Parallel()
	b := newBare(t, cluster.Options{WithoutTemporal: true})
	kubectl(t, b.cluster, "", "apply", "-k", "../../config/default")
	for _, role := range []string{"operator", "worker", "webhook"} {
		kubectl(t, b.cluster, "", "rollout", "status", "deployment/outrigger-"+role, "--namespace=kruise-system", "--timeout=60s")
	}
	// Helm takes over the installation. Afterwards, kubectl removes the installation.
	takeOver := []string{"upgrade", "--install", "--take-ownership", "outrigger", packaged(t), "--wait"}
	if os.Getenv("HELM") != "helm3" { // Helm 3 does not use server-side apply, and therefore has no conflicts.
		takeOver = append(takeOver, "--force-conflicts")
	}
	b.helm(takeOver...)
	b.serve()
	kubectl(t, b.cluster, streamPolicy, "apply", "-f", "-")
	guide, err := os.ReadFile("../../docs/install.md")
	require.NoError(t, err)
	_, commands, found := strings.Cut(string(guide), "```\nkubectl delete -k config/webhook")
	require.True(t, found)
	commands, _, found = strings.Cut("kubectl delete -k config/webhook"+commands, "\n```")
	require.True(t, found)
	bin, err := filepath.Abs("../../bin")
	require.NoError(t, err)
	for i, line := range strings.Split(strings.ReplaceAll(commands, "\\\n", ""), "\n") {
		command := exec.CommandContext(t.Context(), "bash", "-c", line)
		command.Dir = "../.."
		command.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG="+b.cluster.Kubeconfig)
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s: %s", line, out)
		if i == 0 {
			b.stopServing(nil)
		}
	}
	b.assertLeft()
	require.NoError(t, b.pods.end())
}
