package manifests

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/dev/cluster"
)

// jobSpec renders a Job of the chart, and returns the spec of its pod.
func jobSpec(t *testing.T, template, name string, args ...string) object {
	t.Helper()
	return jobTemplate(t, template, name, args...)["spec"].(object)
}

func jobTemplate(t *testing.T, template, name string, args ...string) object {
	t.Helper()
	out, err := output(t, "helm", append([]string{"template", "outrigger", packaged(t), "--namespace=kruise-system", "--show-only=templates/" + template}, args...)...)
	require.NoError(t, err, out)
	return objects(t, out)["Job kruise-system/"+name]["spec"].(object)["template"].(object)
}

// The Jobs must be admitted and scheduled like the roles.
func TestTheHooksRunWhereTheOperatorDoes(t *testing.T) {
	for template, name := range map[string]string{"uninstall.yaml": "outrigger-uninstall", "setup.yaml": "outrigger-temporal-setup", "test.yaml": "outrigger-test"} {
		for _, values := range []string{
			`nodeSelector: {pool: system}, tolerations: [{operator: Exists}], podSpec: {hostNetwork: true}`,
			`podSpec: {nodeSelector: {pool: system}, tolerations: [{operator: Exists}], hostNetwork: true}`,
		} {
			file := t.TempDir() + "/values.yaml"
			require.NoError(t, os.WriteFile(file, []byte("temporal: {setup: {enabled: true}}\noperator: {priorityClassName: mine, "+values+"}\n"), 0o600))
			pod := jobSpec(t, template, name, "--values="+file)
			assert.Equal(t, "mine", pod["priorityClassName"])
			assert.Equal(t, object{"pool": "system"}, pod["nodeSelector"])
			assert.Equal(t, []any{object{"operator": "Exists"}}, pod["tolerations"])
			assert.Equal(t, true, pod["hostNetwork"])
			assert.NotContains(t, pod, "topologySpreadConstraints")
			assert.Equal(t, true, pod["securityContext"].(object)["runAsNonRoot"])
			container := pod["containers"].([]any)[0].(object)
			assert.Equal(t, true, container["securityContext"].(object)["readOnlyRootFilesystem"])
			assert.Contains(t, container["resources"], "limits")
			assert.NotContains(t, container, "livenessProbe")
		}
	}
}

// An admission policy may require labels, and a service mesh must not inject a container that keeps a Job from
// completing.
func TestTheHooksHaveLabelsAndAnnotationsOfTheOperator(t *testing.T) {
	file := t.TempDir() + "/values.yaml"
	require.NoError(t, os.WriteFile(file, []byte(`
temporal: {setup: {enabled: true}, embedded: {enabled: true}}
ui: {enabled: true}
operator:
  podLabels: {team: a, app.kubernetes.io/component: other}
  podAnnotations: {"sidecar.istio.io/inject": "false"}
  podSpec: {hostAliases: [{ip: 10.0.0.1, hostnames: [temporal]}], schedulerName: mine, runtimeClassName: gvisor}
`), 0o600))
	hooks := map[string]object{"ui": objects(t, render(t, "--values="+file))["Deployment kruise-system/outrigger-ui"]["spec"].(object)["template"].(object)}
	for component, name := range map[string]string{"uninstall": "outrigger-uninstall", "setup": "outrigger-temporal-setup", "test": "outrigger-test"} {
		hooks[component] = jobTemplate(t, component+".yaml", name, "--values="+file)
	}
	embedded := objects(t, render(t, "--values="+file))["StatefulSet kruise-system/outrigger-temporal"]["spec"].(object)["template"].(object)["metadata"].(object)
	assert.Equal(t, object{"team": "a", "app.kubernetes.io/name": "outrigger-temporal", "app.kubernetes.io/component": "other"}, embedded["labels"])
	assert.Equal(t, "false", embedded["annotations"].(object)["sidecar.istio.io/inject"])
	for component, hook := range hooks {
		metadata, pod := hook["metadata"].(object), hook["spec"].(object)
		assert.Equal(t, object{"team": "a", "app.kubernetes.io/name": "outrigger", "app.kubernetes.io/component": component}, metadata["labels"])
		assert.Equal(t, "false", metadata["annotations"].(object)["sidecar.istio.io/inject"], component)
		assert.Equal(t, []any{object{"ip": "10.0.0.1", "hostnames": []any{"temporal"}}}, pod["hostAliases"], component)
		assert.Equal(t, "mine", pod["schedulerName"], component)
		assert.Equal(t, "gvisor", pod["runtimeClassName"], component)
	}
}

// The check must use the task queue that the values set for the workers.
func TestTheTestJobAsksTheWorkersOfTheValues(t *testing.T) {
	args := func(values ...string) any {
		return jobSpec(t, "test.yaml", "outrigger-test", values...)["containers"].([]any)[0].(object)["args"]
	}
	assert.NotContains(t, args(), "--task-queue=pipelines")
	assert.Contains(t, args("--set=worker.args={--max-unavailable-pods=9,--task-queue=pipelines}"), "--task-queue=pipelines")
	assert.NotContains(t, args("--set=worker.args={--max-unavailable-pods=9,--task-queue=pipelines}"), "--max-unavailable-pods=9")
}

// kubectl would run the uninstall Job at once, and the Job would delete the installation.
func TestTheUninstallJobCanBeLeftOut(t *testing.T) {
	out, err := output(t, "helm", "template", "outrigger", packaged(t), "--namespace=kruise-system", "--set=uninstall.enabled=false,temporal.setup.enabled=true")
	require.NoError(t, err, out)
	assert.NotContains(t, out, "outrigger-uninstall")
	assert.Contains(t, out, "outrigger-temporal-setup")
}

// The setup Job connects to Temporal with the settings of the roles, and has no token of a service account.
// The uninstall Job must start without the Secrets of Temporal.
func TestOnlyTheSetupJobConnectsToTemporal(t *testing.T) {
	args := []string{
		"--set=temporal.setup.enabled=true,temporal.apiKey.secretName=cloud,temporal.tls.secretName=mtls",
		"--set=operator.env[0].name=HTTPS_PROXY,operator.env[0].value=http://proxy:3128",
	}
	_, operator, container := deployed(t, rendered(t, args...), "operator")
	setup := jobSpec(t, "setup.yaml", "outrigger-temporal-setup", args...)
	own := setup["containers"].([]any)[0].(object)
	assert.Equal(t, operator["volumes"], setup["volumes"])
	assert.Len(t, setup["volumes"], 2)
	assert.Equal(t, container["volumeMounts"], own["volumeMounts"])
	assert.Equal(t, container["envFrom"], own["envFrom"])
	assert.Equal(t, []any{object{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}}, own["env"])
	assert.Equal(t, false, setup["automountServiceAccountToken"])
	assert.NotContains(t, setup, "serviceAccountName")

	uninstall := jobSpec(t, "uninstall.yaml", "outrigger-uninstall", args...)
	assert.NotContains(t, uninstall, "volumes")
	assert.NotContains(t, uninstall["containers"].([]any)[0], "envFrom")
}

// podOf waits for the pod of a Job, and returns the pod.
func (b *bare) podOf(job string) *corev1.Pod {
	b.t.Helper()
	var found *corev1.PodList
	b.await("the pod of Job "+job, func() (done bool) {
		var err error
		found, err = b.client.CoreV1().Pods("kruise-system").List(b.t.Context(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
		require.NoError(b.t, err)
		return len(found.Items) > 0
	})
	return &found.Items[0]
}

// succeed sets the phase of a pod to Succeeded, like the kubelet after exit code 0.
func (b *bare) succeed(pod *corev1.Pod) {
	b.t.Helper()
	patch := `[{"op":"replace","path":"/status/phase","value":"Succeeded"}]`
	kubectl(b.t, b.cluster, "", "patch", "pod", pod.Name, "--namespace=kruise-system", "--subresource=status", "--type=json", "--patch="+patch)
}

// environment returns the environment variables of a container, including the variables from ConfigMaps.
func (b *bare) environment(container corev1.Container) (variables []string) {
	b.t.Helper()
	for _, from := range container.EnvFrom {
		read, err := b.client.CoreV1().ConfigMaps("kruise-system").Get(b.t.Context(), from.ConfigMapRef.Name, metav1.GetOptions{})
		require.NoError(b.t, err)
		for name, value := range read.Data {
			variables = append(variables, name+"="+value)
		}
	}
	for _, variable := range container.Env {
		variables = append(variables, variable.Name+"="+variable.Value)
	}
	return variables
}

// Helm waits for the Job. The program of the Job creates the namespace in a Temporal server.
func TestTheSetupJobPreparesTheNamespaceOfTemporal(t *testing.T) {
	t.Parallel()
	b := newBare(t, cluster.Options{})
	installed := b.goHelm("install", "outrigger", packaged(t), "--create-namespace",
		"--set=temporal.setup.enabled=true,temporal.setup.retention=168h,temporal.namespace=sidecars,temporal.address="+b.cluster.TemporalAddress)
	pod := b.podOf("outrigger-temporal-setup")
	run := func(more ...string) string {
		command := exec.CommandContext(t.Context(), "../../bin/outrigger", append(pod.Spec.Containers[0].Args, more...)...)
		command.Env = b.environment(pod.Spec.Containers[0])
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	assert.Contains(t, run(), "created namespace sidecars, retention 168h0m0s")
	b.succeed(pod)
	require.NoError(t, <-installed)
	assert.NotContains(t, run("--dry-run"), "would")
}
