package manifests

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const chart = "../../charts/outrigger"

// output runs a program in bin/ without the Helm files of the user. The environment variable HELM replaces
// the program helm, for example by helm3.
func output(t *testing.T, program string, args ...string) (string, error) {
	t.Helper()
	if program == "helm" {
		program = cmp.Or(os.Getenv("HELM"), program)
	}
	if program == "helm3" && args[0] == "template" { // A Helm 3 that is built from its module assumes Kubernetes 1.20.
		args = append(args, "--kube-version=1.36.0")
	}
	command := exec.CommandContext(t.Context(), "../../bin/"+program, args...)
	command.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	return string(out) + stderr.String(), err
}

func render(t *testing.T, values ...string) string {
	t.Helper()
	args := append([]string{"template", "outrigger", packaged(t), "--namespace=kruise-system", "--no-hooks"}, values...)
	out, err := output(t, "helm", args...)
	require.NoError(t, err, out)
	return out
}

// packaged packages the chart, so that links are replaced by files, and returns the path of the package.
func packaged(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := output(t, "helm", "package", chart, "--destination="+dir)
	require.NoError(t, err, out)
	files, err := filepath.Glob(dir + "/outrigger-*.tgz")
	require.NoError(t, err)
	require.Len(t, files, 1)
	return files[0]
}

type object = map[string]any

// objects returns the objects of YAML documents by kind, namespace and name.
func objects(t *testing.T, manifests string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for document := range strings.SplitSeq("\n"+manifests, "\n---\n") {
		var one object
		require.NoError(t, yaml.Unmarshal([]byte(document), &one), document)
		if len(one) == 0 {
			continue
		}
		u := unstructured.Unstructured{Object: one}
		name := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
		require.NotContains(t, all, name)
		all[name] = one
	}
	return all
}

// kustomized returns the objects of kustomize directories below config, without the objects that
// Helm creates differently.
func kustomized(t *testing.T, folders ...string) map[string]object {
	t.Helper()
	all := map[string]object{}
	for _, folder := range folders {
		out, err := output(t, "kubectl", "kustomize", folder)
		require.NoError(t, err, out)
		// The name of the ConfigMap of kustomize has a hash suffix, so a change of the ConfigMap restarts the
		// Deployments. The chart uses a checksum annotation instead.
		out = regexp.MustCompile(`outrigger-temporal-[a-z0-9]{10}\b`).ReplaceAllString(out, "outrigger-temporal")
		maps.Copy(all, objects(t, out))
	}
	// Helm creates the namespace with --create-namespace.
	delete(all, "Namespace /kruise-system")
	return all
}

// rendered returns the objects of the chart, without the fields and objects that only Helm needs.
func rendered(t *testing.T, values ...string) map[string]object {
	t.Helper()
	all := objects(t, render(t, values...))
	for name, one := range all {
		switch kind, _, _ := strings.Cut(name, " "); kind {
		case "CustomResourceDefinition":
			keep, _, _ := unstructured.NestedString(one, "metadata", "annotations", "helm.sh/resource-policy")
			require.Equal(t, "keep", keep, "or all SidecarSets go with the release")
			unstructured.RemoveNestedField(one, "metadata", "annotations", "helm.sh/resource-policy")
		case "Deployment":
			unstructured.RemoveNestedField(one, "spec", "template", "metadata", "annotations")
		}
	}
	return all
}

func assertSame(t *testing.T, want, got map[string]object) {
	t.Helper()
	assert.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	for name := range want {
		assert.Equal(t, want[name], got[name], name)
	}
}

func TestTheChartEqualsTheKustomization(t *testing.T) {
	assertSame(t, kustomized(t, "../../config/default"), rendered(t))
}

func TestTheChartHasTheOptionalFoldersToo(t *testing.T) {
	policies := t.TempDir()
	folder, err := filepath.Abs("../../config/networkpolicy")
	require.NoError(t, err)
	folder, err = filepath.Rel(policies, folder)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(policies+"/kustomization.yaml", []byte("components: ["+folder+"]\n"), 0o600))
	want := kustomized(t, "../../config/default", "../../config/monitoring", policies)
	assertSame(t, want, rendered(t, "--set=monitoring.enabled=true,networkPolicy.enabled=true"))
}

func TestTheChartIsWellFormed(t *testing.T) {
	for _, values := range [][]string{
		{},
		{"--set=networkPolicy.enabled=true,monitoring.enabled=true,temporal.embedded.enabled=true,aggregateClusterRoles=false"},
	} {
		out, err := output(t, "helm", append([]string{"lint", "--strict", packaged(t)}, values...)...)
		require.NoError(t, err, out)
	}
}

// The objects of a release refer only to the namespace of the release.
func TestTheChartGoesIntoAnyNamespace(t *testing.T) {
	out, err := output(t, "helm", "template", "outrigger", packaged(t), "--namespace=sidecars",
		"--set=networkPolicy.enabled=true,monitoring.enabled=true,temporal.embedded.enabled=true")
	require.NoError(t, err, out)
	assert.NotContains(t, out, "kruise-system")
	assert.Contains(t, out, "--namespace=sidecars")
}

func TestRightsNeedNotBeAggregated(t *testing.T) {
	all := rendered(t, "--set=aggregateClusterRoles=false")
	for name, verbs := range map[string]int{"outrigger-view": 3, "outrigger-edit": 5, "outrigger-actions": 5} {
		role := unstructured.Unstructured{Object: all["ClusterRole /"+name]}
		assert.Empty(t, role.GetLabels())
		rules, _, err := unstructured.NestedSlice(role.Object, "rules")
		require.NoError(t, err)
		assert.Len(t, rules[0].(object)["verbs"], verbs)
	}
}

// deployed returns the spec, the pod and the container of the Deployment of a role.
func deployed(t *testing.T, all map[string]object, role string) (spec, pod, container object) {
	t.Helper()
	deployment := all["Deployment kruise-system/outrigger-"+role]
	require.NotNil(t, deployment)
	spec = deployment["spec"].(object)
	pod = spec["template"].(object)["spec"].(object)
	return spec, pod, pod["containers"].([]any)[0].(object)
}

func TestValuesOfARoleOverrideDefaults(t *testing.T) {
	values := `
image: {repository: registry.example/outrigger, digest: "sha256:` + strings.Repeat("0", 64) + `", pullPolicy: Always}
imagePullSecrets: [{name: pull}]
worker:
  replicas: 1
  priorityClassName: mine
  resources: {limits: {memory: 2Gi}}
  goMemLimit: 1700MiB
  args: [--max-unavailable-pods=100]
  env: [{name: GOGC, value: "50"}]
  podLabels: {team: a, app.kubernetes.io/component: other}
  podSpec: {nodeSelector: {pool: system}, topologySpreadConstraints: []}
webhook:
  annotations: {admissions.enforcer/disabled: "true"}
  pods: {failurePolicy: Ignore, timeoutSeconds: 3}
`
	file := t.TempDir() + "/values.yaml"
	require.NoError(t, os.WriteFile(file, []byte(values), 0o600))
	all, shipped := rendered(t, "--values="+file), rendered(t)

	spec, pod, container := deployed(t, all, "worker")
	assert.EqualValues(t, 1, spec["replicas"])
	assert.Equal(t, "a", spec["template"].(object)["metadata"].(object)["labels"].(object)["team"])
	assert.Equal(t, "worker", spec["template"].(object)["metadata"].(object)["labels"].(object)["app.kubernetes.io/component"], "or the Deployment is rejected")
	assert.Equal(t, "mine", pod["priorityClassName"])
	assert.Equal(t, object{"pool": "system"}, pod["nodeSelector"])
	assert.Empty(t, pod["topologySpreadConstraints"])
	assert.Equal(t, []any{object{"name": "pull"}}, pod["imagePullSecrets"])
	assert.Equal(t, "registry.example/outrigger@sha256:"+strings.Repeat("0", 64), container["image"])
	assert.Equal(t, "Always", container["imagePullPolicy"])
	assert.Equal(t, object{"limits": object{"memory": "2Gi"}}, container["resources"])
	_, _, before := deployed(t, shipped, "worker")
	own := before["env"].([]any)[1:]
	assert.Equal(t, slices.Concat([]any{object{"name": "GOMEMLIMIT", "value": "1700MiB"}}, own, []any{object{"name": "GOGC", "value": "50"}}), container["env"])
	assert.NotEmpty(t, own)
	assert.Equal(t, append(slices.Clone(before["args"].([]any)), "--max-unavailable-pods=100"), container["args"])
	assert.NotContains(t, all, "PodDisruptionBudget kruise-system/outrigger-worker", "it would block drains forever")
	assert.Contains(t, all, "PodDisruptionBudget kruise-system/outrigger-operator")

	hook := all["MutatingWebhookConfiguration /outrigger"]["webhooks"].([]any)[0].(object)
	assert.Equal(t, "Ignore", hook["failurePolicy"])
	assert.EqualValues(t, 3, hook["timeoutSeconds"])
	was := shipped["MutatingWebhookConfiguration /outrigger"]["webhooks"].([]any)[0].(object)
	assert.Equal(t, was["namespaceSelector"], hook["namespaceSelector"])
	for _, configuration := range []string{"MutatingWebhookConfiguration /outrigger", "ValidatingWebhookConfiguration /outrigger"} {
		assert.Equal(t, object{"admissions.enforcer/disabled": "true"}, all[configuration]["metadata"].(object)["annotations"])
	}
}

// OpenShift rejects the dry run of a privileged sidecar unless the ServiceAccount of the dry run may use a
// privileged security context constraint.
func TestPrivilegedSidecarsAreValidatedOnOpenShift(t *testing.T) {
	const binding = "RoleBinding outrigger-validation/outrigger-validation"
	assert.NotContains(t, rendered(t), binding)
	all := rendered(t, "--api-versions=security.openshift.io/v1")
	require.Contains(t, all, binding)
	assert.Equal(t, "system:openshift:scc:privileged", all[binding]["roleRef"].(object)["name"])
	assert.Equal(t, []any{object{"kind": "ServiceAccount", "name": "default", "namespace": "outrigger-validation"}}, all[binding]["subjects"])
}

// OpenShift assigns the user of a pod, and rejects a pod that sets another user.
func TestTheClusterMaySetTheUserOfThePods(t *testing.T) {
	none := "--set=temporal.embedded.securityContext.runAsUser=null,temporal.embedded.securityContext.runAsGroup=null,temporal.embedded.securityContext.fsGroup=null"
	all := rendered(t, "--set=temporal.embedded.enabled=true,ui.enabled=true,temporal.setup.enabled=true", none)
	users := object{"runAsNonRoot": true, "seccompProfile": object{"type": "RuntimeDefault"}}
	for name, one := range all {
		spec, _ := one["spec"].(object)
		template, ok := spec["template"].(object)
		if !ok {
			continue
		}
		pod := template["spec"].(object)
		assert.Equal(t, users, pod["securityContext"], name)
		for _, container := range pod["containers"].([]any) {
			assert.NotContains(t, container.(object)["securityContext"], "runAsUser", name)
		}
	}
	require.Contains(t, all, "StatefulSet kruise-system/outrigger-temporal")
	assert.EqualValues(t, 65532, *embedded(t, rendered(t, "--set=temporal.embedded.enabled=true")).Spec.Template.Spec.SecurityContext.FSGroup)
}

// Custom selectors and match conditions are added to the defaults. Without the defaults, a cluster of new nodes,
// or Outrigger itself, could not start.
func TestSpec4_13_CustomSelectorsKeepTheExcludedNamespaces(t *testing.T) {
	values := `
excludedNamespaces: [my-network]
webhook:
  pods:
    namespaceSelector: {matchLabels: {team: a}, matchExpressions: [{key: tier, operator: Exists}]}
    matchConditions: [{name: mine, expression: "true"}]
`
	file := t.TempDir() + "/values.yaml"
	require.NoError(t, os.WriteFile(file, []byte(values), 0o600))
	hook := func(args ...string) (selector object, conditions []any) {
		one := rendered(t, args...)["MutatingWebhookConfiguration /outrigger"]["webhooks"].([]any)[0].(object)
		return one["namespaceSelector"].(object), one["matchConditions"].([]any)
	}
	shipped, critical := hook("--set=excludedNamespaces={my-network}")
	require.Len(t, critical, 1)
	selector, conditions := hook("--values=" + file)
	assert.Equal(t, object{"team": "a"}, selector["matchLabels"])
	assert.Equal(t, append(slices.Clone(shipped["matchExpressions"].([]any)), object{"key": "tier", "operator": "Exists"}), selector["matchExpressions"])
	assert.Equal(t, append(slices.Clone(critical), object{"name": "mine", "expression": "true"}), conditions)

	// The names of match conditions are unique, so a custom match condition replaces the default with the same
	// name.
	_, conditions = hook("--set=webhook.pods.matchConditions[0].name=not-system-critical,webhook.pods.matchConditions[0].expression=false")
	assert.Equal(t, []any{object{"name": "not-system-critical", "expression": false}}, conditions)
}

// If cert-manager issues the certificate of the webhook, and the certificate has expired, the pods of cert-manager
// must start before API servers trust the webhook again.
func TestSpec4_13_CertManagerStartsWithoutTheWebhook(t *testing.T) {
	hook := rendered(t)["MutatingWebhookConfiguration /outrigger"]["webhooks"].([]any)[0].(object)
	names := hook["namespaceSelector"].(object)["matchExpressions"].([]any)[0].(object)
	require.Equal(t, "kubernetes.io/metadata.name", names["key"])
	assert.Contains(t, names["values"], "cert-manager")
}

// The operator and the worker read Secrets from files. The webhook mounts no Secrets of Temporal.
func TestTemporalIsReachedBySecrets(t *testing.T) {
	all := rendered(t, "--set=temporal.address=eu.example:7233,temporal.namespace=sidecars.a1b2c",
		"--set=temporal.apiKey.secretName=cloud", "--set=temporal.tls.secretName=mtls,temporal.tls.ca=true,temporal.tls.serverName=temporal.example",
		"--set=temporal.payloadKeys.secretName=payload,temporal.payloadKeys.encrypt=true", "--set=temporal.env.OTEL_SERVICE_NAME=x")
	assert.Equal(t, object{
		"TEMPORAL_ADDRESS": "eu.example:7233", "TEMPORAL_NAMESPACE": "sidecars.a1b2c", "TEMPORAL_UI_URL": "",
		"TEMPORAL_API_KEY_FILE":         "/etc/temporal/api-key/api-key",
		"TEMPORAL_TLS_CLIENT_CERT_PATH": "/etc/temporal/tls/tls.crt", "TEMPORAL_TLS_CLIENT_KEY_PATH": "/etc/temporal/tls/tls.key",
		"TEMPORAL_TLS_SERVER_CA_CERT_PATH": "/etc/temporal/tls/ca.crt", "TEMPORAL_TLS_SERVER_NAME": "temporal.example",
		"TEMPORAL_PAYLOAD_KEY_DIR": "/etc/temporal/payload-keys", "TEMPORAL_PAYLOAD_KEY_ID_FILE": "/etc/temporal/payload-keys/.current",
		"OTEL_SERVICE_NAME": "x",
	}, all["ConfigMap kruise-system/outrigger-temporal"]["data"])
	for _, role := range []string{"operator", "worker"} {
		_, pod, container := deployed(t, all, role)
		mounted := map[string]any{}
		for _, mount := range container["volumeMounts"].([]any) {
			mounted[mount.(object)["name"].(string)] = mount.(object)["mountPath"]
			assert.NotContains(t, mount, "subPath", "it would never be replaced")
		}
		secrets := map[any]any{}
		for _, volume := range pod["volumes"].([]any) {
			secrets[mounted[volume.(object)["name"].(string)]] = volume.(object)["secret"].(object)["secretName"]
		}
		assert.Equal(t, map[any]any{"/etc/temporal/api-key": "cloud", "/etc/temporal/tls": "mtls", "/etc/temporal/payload-keys": "payload"}, secrets)
	}
	_, pod, _ := deployed(t, all, "webhook")
	assert.NotContains(t, pod, "volumes")
}

func TestTheEmbeddedTemporalKeepsItsHistory(t *testing.T) {
	all := rendered(t, "--set=temporal.embedded.enabled=true")
	data := all["ConfigMap kruise-system/outrigger-temporal"]["data"].(object)
	assert.Equal(t, "outrigger-temporal.kruise-system:7233", data["TEMPORAL_ADDRESS"])
	server := embedded(t, all)
	pod := server.Spec.Template.Spec
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.Contains(t, pod.Containers[0].Args, "--search-attribute=SidecarSet=Keyword")
	assert.Contains(t, all, "Service kruise-system/"+server.Spec.ServiceName)
	require.Len(t, server.Spec.VolumeClaimTemplates, 1)
	claim := server.Spec.VolumeClaimTemplates[0]
	assert.Equal(t, "2Gi", claim.Spec.Resources.Requests.Storage().String())
	assert.Nil(t, claim.Spec.StorageClassName, "the default StorageClass")
	mount := pod.Containers[0].VolumeMounts[0]
	assert.Equal(t, claim.Name, mount.Name)
	assert.Contains(t, pod.Containers[0].Args, "--db-filename="+mount.MountPath+"/temporal.db")

	assert.Contains(t, pod.Containers[0].Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "850MiB"})
	assert.Equal(t, "system-cluster-critical", pod.PriorityClassName)

	pod = embedded(t, rendered(t, "--set=temporal.embedded.enabled=true,temporal.embedded.nodeSelector.pool=system,temporal.embedded.tolerations[0].operator=Exists")).Spec.Template.Spec
	assert.Equal(t, map[string]string{"pool": "system"}, pod.NodeSelector)
	assert.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations)
	server = embedded(t, rendered(t, "--set=temporal.embedded.enabled=true,temporal.embedded.storage.storageClassName=fast"))
	assert.Equal(t, "fast", *server.Spec.VolumeClaimTemplates[0].Spec.StorageClassName)
	server = embedded(t, rendered(t, "--set=temporal.embedded.enabled=true,temporal.embedded.storage.size="))
	assert.Empty(t, server.Spec.VolumeClaimTemplates)
	assert.NotNil(t, server.Spec.Template.Spec.Volumes[2].EmptyDir)
}

// The server and the clients present the same certificate. Without this certificate, only clients of kubectl
// port-forward reach the server.
func TestTheEmbeddedTemporalNeedsAClientCertificate(t *testing.T) {
	const optional, host = "--set=temporal.embedded.enabled=true,ui.enabled=true", "outrigger-temporal.kruise-system"
	all := rendered(t, optional)
	secret := &corev1.Secret{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(all["Secret kruise-system/outrigger-temporal-tls"], secret, true))
	_, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	require.NoError(t, err)
	block, _ := pem.Decode(secret.Data["tls.crt"])
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(secret.Data["ca.crt"]))
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err = certificate.Verify(x509.VerifyOptions{DNSName: host, Roots: pool, CurrentTime: time.Now().AddDate(5, 0, 0), KeyUsages: []x509.ExtKeyUsage{usage}})
		require.NoError(t, err)
	}

	for values, name := range map[string]string{optional: secret.Name, optional + ",temporal.tls.secretName=own,temporal.tls.clientCertificate=false": "own"} {
		all := rendered(t, values)
		assert.Equal(t, name == secret.Name, all["Secret kruise-system/outrigger-temporal-tls"] != nil)
		data := all["ConfigMap kruise-system/outrigger-temporal"]["data"].(object)
		assert.Equal(t, host+":7233", data["TEMPORAL_ADDRESS"])
		for variable, file := range map[string]string{"CLIENT_CERT": "tls.crt", "CLIENT_KEY": "tls.key", "SERVER_CA_CERT": "ca.crt"} {
			assert.Equal(t, "/etc/temporal/tls/"+file, data["TEMPORAL_TLS_"+variable+"_PATH"])
		}
		for _, client := range []string{"Deployment kruise-system/outrigger-operator", "Deployment kruise-system/outrigger-worker", "Deployment kruise-system/outrigger-ui", "StatefulSet kruise-system/outrigger-temporal"} {
			var workload struct {
				Spec struct {
					Template corev1.PodTemplateSpec `json:"template"`
				} `json:"spec"`
			}
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(all[client], &workload), client)
			assert.True(t, slices.ContainsFunc(workload.Spec.Template.Spec.Volumes, func(volume corev1.Volume) bool {
				return volume.Secret != nil && volume.Secret.SecretName == name
			}), client)
		}
		server := embedded(t, all).Spec.Template.Spec
		assert.Contains(t, server.Containers[0].Args, "--ip=127.0.0.1")
		assert.Equal(t, "frontend", server.Containers[1].Ports[0].Name)
		assert.Equal(t, []any{object{"name": "frontend", "port": float64(7233), "targetPort": "frontend"}}, all["Service kruise-system/outrigger-temporal"]["spec"].(object)["ports"])
	}
}

// embedded returns the StatefulSet of the embedded Temporal.
func embedded(t *testing.T, all map[string]object) *appsv1.StatefulSet {
	t.Helper()
	server := &appsv1.StatefulSet{}
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(all["StatefulSet kruise-system/outrigger-temporal"], server, true))
	return server
}

// API servers are outside of the pod network, in both IP families.
func TestAPIServersOfBothFamiliesReachTheWebhook(t *testing.T) {
	all := rendered(t, "--set=networkPolicy.enabled=true")
	var policy networkingv1.NetworkPolicy
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(all["NetworkPolicy kruise-system/outrigger-webhook"], &policy, true))
	reaches := func(address string) bool {
		from := netip.MustParseAddr(address)
		return slices.ContainsFunc(policy.Spec.Ingress[0].From, func(peer networkingv1.NetworkPolicyPeer) bool {
			within := func(network string) bool { return netip.MustParsePrefix(network).Contains(from) }
			return within(peer.IPBlock.CIDR) && !slices.ContainsFunc(peer.IPBlock.Except, within)
		})
	}
	for address, want := range map[string]bool{"192.0.2.1": true, "2001:db8::1": true, "fd00::1": true, "10.244.3.4": false, "fd00:10:244::3": false} {
		assert.Equal(t, want, reaches(address), address)
	}
}

// Any client that reaches the embedded Temporal can pause rollouts. Therefore, the chart contains the
// NetworkPolicy of the embedded Temporal even if networkPolicy.enabled is false.
func TestOnlyTheRolesReachTheEmbeddedTemporal(t *testing.T) {
	const name = "NetworkPolicy kruise-system/outrigger-temporal"
	assert.NotContains(t, rendered(t, "--set=networkPolicy.enabled=true"), name)

	all := rendered(t, "--set=temporal.embedded.enabled=true")
	require.Contains(t, all, name)
	var policy networkingv1.NetworkPolicy
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(all[name], &policy, true))
	selects := func(selector *metav1.LabelSelector, role string) bool {
		template := embedded(t, all).Spec.Template
		if role != "temporal" {
			var deployment appsv1.Deployment
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(all["Deployment kruise-system/outrigger-"+role], &deployment))
			template = deployment.Spec.Template
		}
		compiled, err := metav1.LabelSelectorAsSelector(selector)
		require.NoError(t, err)
		return compiled.Matches(labels.Set(template.Labels))
	}
	for role, asks := range map[string]bool{"operator": true, "worker": true, "webhook": false, "temporal": false} {
		assert.Equal(t, asks, selects(policy.Spec.Ingress[0].From[0].PodSelector, role), role)
		assert.Equal(t, role == "temporal", selects(&policy.Spec.PodSelector, role), role)
	}
	clients, err := metav1.LabelSelectorAsSelector(policy.Spec.Ingress[0].From[0].PodSelector)
	require.NoError(t, err)
	for _, component := range []string{"setup", "ui", "test"} {
		assert.True(t, clients.Matches(labels.Set{"app.kubernetes.io/name": "outrigger", "app.kubernetes.io/component": component}), component)
	}

	for _, role := range []string{"operator", "worker", "webhook"} {
		spec, pod, _ := deployed(t, rendered(t, "--set="+role+".podSpec.hostNetwork=true"), role)
		assert.Equal(t, "ClusterFirstWithHostNet", pod["dnsPolicy"], "otherwise, the pod does not find Temporal")
		_, pod, _ = deployed(t, rendered(t, "--set="+role+".podSpec.hostNetwork=true,"+role+".podSpec.dnsPolicy=Default"), role)
		assert.Equal(t, "Default", pod["dnsPolicy"])
		assert.Equal(t, object{"rollingUpdate": object{"maxSurge": float64(0), "maxUnavailable": float64(1)}}, spec["strategy"], "a surge pod needs the ports of a former pod")
	}
	for _, role := range []string{"operator", "worker"} {
		policy = networkingv1.NetworkPolicy{}
		hosted := rendered(t, "--set=temporal.embedded.enabled=true,"+role+".podSpec.hostNetwork=true")
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(hosted[name], &policy, true))
		assert.Empty(t, policy.Spec.Ingress[0].From, "connections of the role come from the address of a node")
		assert.Len(t, policy.Spec.Ingress[0].Ports, 1)
	}
}
