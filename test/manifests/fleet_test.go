package manifests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/temporal"
)

// fleetFlags returns the flags of a role that configure the fleet.
func fleetFlags(t *testing.T, manifests map[string]object, role string) (flags []string) {
	t.Helper()
	deployment, ok := manifests["Deployment kruise-system/outrigger-"+role]
	require.True(t, ok)
	spec := deployment["spec"].(object)["template"].(object)["spec"].(object)
	for _, arg := range spec["containers"].([]any)[0].(object)["args"].([]any) {
		if strings.HasPrefix(arg.(string), "--fleet") {
			flags = append(flags, arg.(string))
		}
	}
	return flags
}

func TestSpec12_TheChartMakesAClusterAMemberOfAFleet(t *testing.T) {
	without, with := objects(t, render(t)), objects(t, render(t, "--set", "fleet.enabled=true", "--set", "fleet.temporal.address=hub:7233",
		"--set", "fleet.temporal.namespace=fleet", "--set", "fleet.cluster.name=eu-1", "--set", "fleet.cluster.labels.stage=canary"))
	for name, right := range kustomized(t, "../../config/fleet") {
		assert.NotContains(t, without, name)
		assert.Equal(t, right, with[name])
	}
	for _, role := range []string{"operator", "webhook", "worker"} {
		assert.Empty(t, fleetFlags(t, without, role))
		assert.True(t, slices.Contains(fleetFlags(t, with, role), "--fleet"), role)
	}
	assert.Equal(t, []string{"--fleet"}, fleetFlags(t, with, "webhook"))
	assert.Equal(t, []string{
		"--fleet", "--fleet-temporal-address=hub:7233", "--fleet-temporal-namespace=fleet", "--fleet-cluster-name=eu-1", "--fleet-cluster-labels=stage=canary",
	}, fleetFlags(t, with, "worker"))
}

// secretsOf returns the Secrets that a role mounts, by the path of the mount.
func secretsOf(t *testing.T, manifests map[string]object, role string) map[string]string {
	t.Helper()
	_, pod, container := deployed(t, manifests, role)
	paths, secrets := map[any]string{}, map[string]string{}
	mounts, _ := container["volumeMounts"].([]any)
	for _, mount := range mounts {
		paths[mount.(object)["name"]] = mount.(object)["mountPath"].(string)
	}
	volumes, _ := pod["volumes"].([]any)
	for _, volume := range volumes {
		if secret, ok := volume.(object)["secret"].(object); ok {
			secrets[paths[volume.(object)["name"]]] = secret["secretName"].(string)
		}
	}
	return secrets
}

// Only the roles that connect to the fleet mount the Secrets of the fleet. Each role must accept the flags that
// the chart sets.
func TestSpec12_9_TheChartConnectsToAFleetWithCredentialsOfItsOwn(t *testing.T) {
	const own = "/etc/temporal/fleet-"
	all := rendered(t, "--set=ui.enabled=true,fleet.enabled=true,fleet.temporal.address=hub:7233,temporal.tls.secretName=mtls",
		"--set=fleet.temporal.apiKey.secretName=key,fleet.temporal.tls.enabled=true,fleet.temporal.tls.serverName=hub,fleet.temporal.tls.secretName=fleet,fleet.temporal.tls.ca=true",
		"--set=fleet.temporal.payloadKeys.secretName=payload,fleet.temporal.payloadKeys.encrypt=true")
	for _, role := range []string{"worker", "ui"} {
		flags := fleetFlags(t, all, role)
		assert.Equal(t, []string{
			"--fleet", "--fleet-temporal-address=hub:7233", "--fleet-temporal-api-key-file=" + own + "api-key/api-key", "--fleet-temporal-tls",
			"--fleet-temporal-tls-server-name=hub", "--fleet-temporal-tls-cert-path=" + own + "tls/tls.crt", "--fleet-temporal-tls-key-path=" + own + "tls/tls.key",
			"--fleet-temporal-tls-ca-path=" + own + "tls/ca.crt", "--fleet-temporal-payload-key-dir=" + own + "payload-keys",
			"--fleet-temporal-payload-key-id-file=" + own + "payload-keys/.current",
		}, flags, role)
		known := pflag.NewFlagSet(role, pflag.ContinueOnError)
		new(temporal.FleetFlags).AddTo(known)
		require.NoError(t, known.Parse(flags[1:]), role)
		assert.Equal(t, map[string]string{
			"/etc/temporal/tls": "mtls", own + "api-key": "key", own + "tls": "fleet", own + "payload-keys": "payload",
		}, secretsOf(t, all, role), role)
	}
	assert.Equal(t, map[string]string{"/etc/temporal/tls": "mtls"}, secretsOf(t, all, "operator"))
	assert.Empty(t, secretsOf(t, all, "webhook"))

	all = rendered(t, "--set=fleet.enabled=true,fleet.temporal.tls.secretName=ca,fleet.temporal.tls.clientCertificate=false,fleet.temporal.tls.ca=true",
		"--set=fleet.temporal.payloadKeys.secretName=payload")
	assert.Equal(t, []string{"--fleet", "--fleet-temporal-tls-ca-path=" + own + "tls/ca.crt", "--fleet-temporal-payload-key-dir=" + own + "payload-keys"}, fleetFlags(t, all, "worker"))
	all = rendered(t, "--set=fleet.temporal.tls.secretName=ca")
	assert.Empty(t, secretsOf(t, all, "worker"), "outside a fleet")
}

// recipes returns the objects in the YAML blocks of docs/fleet.md.
func recipes(t *testing.T) map[string]object {
	t.Helper()
	text, err := os.ReadFile("../../docs/fleet.md")
	require.NoError(t, err)
	all := map[string]object{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(apiVersion: .*?)```").FindAllStringSubmatch(string(text), -1) {
		maps.Copy(all, objects(t, block[1]))
	}
	return all
}

func TestTheChartAcceptsTheValuesOfTheRecipeForArgoCD(t *testing.T) {
	values, ok, err := unstructured.NestedMap(recipes(t)["ApplicationSet argocd/outrigger"], "spec", "template", "spec", "source", "helm", "valuesObject")
	require.True(t, ok, err)
	file := filepath.Join(t.TempDir(), "values.yaml")
	text, err := yaml.Marshal(values)
	require.NoError(t, err)
	cluster := strings.NewReplacer("{{.name}}", "eu-1", "{{.metadata.labels.stage}}", "canary", "{{.metadata.labels.region}}", "eu")
	require.NoError(t, os.WriteFile(file, []byte(cluster.Replace(string(text))), 0o600))
	assert.Equal(t, []string{
		"--fleet", "--fleet-temporal-address=temporal.example.com:7233", "--fleet-temporal-namespace=outrigger-fleet", "--fleet-cluster-name=eu-1",
		"--fleet-cluster-labels=region=eu", "--fleet-cluster-labels=stage=canary",
	}, fleetFlags(t, rendered(t, "--values="+file), "worker"))
}

// The API server of Karmada does not convert objects, and watches the preferred version of a kind.
func TestKarmadaGetsOneVersionOfEachKindThatItDelivers(t *testing.T) {
	delivered := map[string]bool{}
	for _, definition := range kustomized(t, "../../config/karmada") {
		spec := definition["spec"].(object)
		require.Len(t, spec["versions"], 1, definition)
		assert.NotContains(t, spec, "conversion")
		delivered[fmt.Sprintf("%s/%s %s", spec["group"], spec["versions"].([]any)[0].(object)["name"], spec["names"].(object)["kind"])] = true
	}
	selectors, ok, err := unstructured.NestedSlice(recipes(t)["ClusterPropagationPolicy /sidecarsets"], "spec", "resourceSelectors")
	require.True(t, ok, err)
	require.Len(t, selectors, 2)
	for _, selector := range selectors {
		kind := fmt.Sprintf("%s %s", selector.(object)["apiVersion"], selector.(object)["kind"])
		assert.True(t, delivered[kind], kind)
	}
}

// The certificate of the embedded Temporal must not be used for the Temporal of the fleet.
func TestAFleetWithoutTLSIsReachedFromAnEmbeddedTemporal(t *testing.T) {
	const embedded, plain = "--set=fleet.enabled=true,fleet.cluster.name=c1,temporal.embedded.enabled=true", "--fleet-temporal-tls=false"
	for values, disabled := range map[string]bool{
		embedded: false, embedded + ",fleet.temporal.address=hub:7233": true,
		embedded + ",fleet.temporal.address=hub:7233,fleet.temporal.tls.enabled=true":   false,
		embedded + ",fleet.temporal.address=hub:7233,fleet.temporal.tls.serverName=hub": false,
	} {
		_, _, container := deployed(t, rendered(t, values), "worker")
		assert.Equal(t, disabled, slices.Contains(container["args"].([]any), any(plain)), values)
	}
	// The flag of the worker also applies to the pages.
	all := rendered(t, "--set=fleet.enabled=true,fleet.cluster.name=c1,ui.enabled=true,worker.args={"+plain+"}")
	_, _, pages := deployed(t, rendered(t, "--set=ui.enabled=true,worker.args={"+plain+"}"), "ui")
	assert.NotContains(t, pages["args"], plain, "outrigger ui rejects flags of a fleet without --fleet")
	for _, name := range []string{"worker", "ui"} {
		_, _, container := deployed(t, all, name)
		assert.Contains(t, container["args"], plain, name)
	}
}
