package manifests

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestValuesThatMeanNothingAreRejected(t *testing.T) {
	for _, values := range []string{
		"worker.replica=3", "worker.replicas=-1", "webhook.replicas=0", "worker.replicas=many", "replicas=3", "webhook.args={port=1}",
		"worker.podSpec.containers[0].name=x", "temporal.adress=x:1", "temporal.address=https://x:1", "temporal.env.TEMPORAL_API_KEY=secret",
		"temporal.payloadKeys.encrypt=true", "fleet.temporal.payloadKeys.encrypt=true", "fleet.temporal.apiKey.value=secret", "image.digest=sha256:1", "webhook.pods.rules[0]=x", "worker.pods.timeoutSeconds=3", "webhook.matchConditions=yes", "worker.matchConditions=true", "webhook.goMemLimit=1Gi",
	} {
		out, err := output(t, "helm", "template", "outrigger", chart, "--set="+values)
		require.Error(t, err, values)
		assert.Contains(t, out, "don't meet the specifications of the schema", values)
	}
}

func TestValuesThatContradictEachOtherOrTheRolesAreRejected(t *testing.T) {
	for values, message := range map[string]string{
		"temporal.setup.enabled=true,temporal.setup.retention=23h":                          "temporal.setup.retention is 23h: use at least 24h",
		"webhook.certManager.enabled=true,webhook.certManager.issuerRef.kind=ClusterIssuer": "webhook.certManager.issuerRef.name is empty",
		"webhook.autoscaling.enabled=true,webhook.autoscaling.maxReplicas=1":                "webhook.autoscaling: minReplicas 2 is greater than maxReplicas 1",
		"webhook.autoscaling.enabled=true,webhook.resources.limits.memory=2Gi":              "webhook.autoscaling: set webhook.resources.requests.cpu",
	} {
		out, err := output(t, "helm", "template", "outrigger", chart, "--set="+values)
		require.Error(t, err, values)
		assert.Contains(t, out, message)
	}
	out, err := output(t, "helm", "template", "outrigger", chart,
		"--set=temporal.setup.enabled=true,temporal.setup.retention=24h,webhook.autoscaling.enabled=true,webhook.autoscaling.maxReplicas=2")
	require.NoError(t, err, out)
	out, err = output(t, "helm", "template", "outrigger", chart, "--set=enabled=true,webhook.autoscaling.enabled=true,webhook.resources.requests.cpu=1")
	require.NoError(t, err, "Helm gives a chart the value enabled of a condition of a parent chart: %s", out)
}

// If replicas is null, an autoscaler of the user sets the number of replicas. This number may be one, so the budget
// must permit the eviction of a single replica.
func TestARoleWithoutReplicasHasABudget(t *testing.T) {
	all := rendered(t, "--set=webhook.replicas=null")
	spec, _, _ := deployed(t, all, "webhook")
	assert.NotContains(t, spec, "replicas")
	const name = "PodDisruptionBudget kruise-system/outrigger-webhook"
	require.Contains(t, all, name)
	budget := all[name]["spec"].(object)
	assert.EqualValues(t, 1, budget["maxUnavailable"])
	assert.NotContains(t, budget, "minAvailable")
	assert.EqualValues(t, 1, rendered(t, "--set=webhook.replicas=null,webhook.autoscaling.enabled=true")[name]["spec"].(object)["minAvailable"])
	assert.NotContains(t, rendered(t, "--set=webhook.replicas=1"), name)
}

// Probes, network policies and the PodMonitor select ports by name, so the ports follow the flags.
func TestThePortsOfARoleFollowItsFlags(t *testing.T) {
	for _, role := range []string{"operator", "worker", "webhook"} {
		args := "--set=" + role + ".args={--health-probe-bind-address=:9081,--metrics-bind-address=[::]:9080}"
		assert.Subset(t, ports(t, rendered(t, args), role), []string{"metrics 9080", "health 9081"}, role)
		without := ports(t, rendered(t, "--set="+role+".args={--metrics-bind-address=0}"), role)
		assert.Contains(t, without, "health 8081", role)
		assert.NotContains(t, strings.Join(without, " "), "metrics", role)
		for _, off := range []string{"0", ""} {
			out, err := output(t, "helm", "template", "outrigger", chart, "--set="+role+".args={--health-probe-bind-address="+off+"}")
			require.Error(t, err)
			assert.Contains(t, out, role+".args: --health-probe-bind-address="+off+" turns off the probes of the pods")
		}
	}
	assert.Contains(t, ports(t, rendered(t, "--set=webhook.args={--port=10250}"), "webhook"), "webhook 10250")
}

// ports returns the names and numbers of the ports of a role.
func ports(t *testing.T, all map[string]object, role string) []string {
	t.Helper()
	_, _, container := deployed(t, all, role)
	var found []string
	for _, port := range container["ports"].([]any) {
		found = append(found, fmt.Sprint(port.(object)["name"], " ", port.(object)["containerPort"]))
	}
	return found
}

// In a values file, null removes a default. The message names the value that the templates need.
func TestNullIsRejectedWhereAValueIsNeeded(t *testing.T) {
	for parent, needed := range map[string]string{
		"":                    "image temporal test fleet uninstall ui operator worker webhook excludedNamespaces networkPolicy",
		"temporal":            "address namespace uiURL apiKey tls payloadKeys env embedded",
		"temporal.apiKey":     "key",
		"temporal.setup":      "retention",
		"temporal.embedded":   "image storage securityContext",
		"fleet":               "cluster",
		"fleet.temporal":      "apiKey tls payloadKeys",
		"operator":            "args env podAnnotations podLabels podSpec",
		"webhook":             "args env podAnnotations podLabels podSpec pods",
		"webhook.certManager": "issuerRef",
		"webhook.autoscaling": "maxReplicas targetCPUUtilizationPercentage",
		"test":                "podNamespace",
		"ui":                  "tls",
		"uninstall":           "enabled",
		"networkPolicy":       "webhookFrom",
	} {
		var values []string
		for name := range strings.FieldsSeq(needed) {
			values = append(values, strings.TrimPrefix(parent+"."+name, ".")+"=null")
		}
		out, err := output(t, "helm", "template", "outrigger", chart, "--set="+strings.Join(values, ","))
		require.Error(t, err, values)
		assert.Contains(t, out, "- at '"+strings.ReplaceAll(strings.TrimSuffix("/"+parent, "/"), ".", "/")+"': missing propert")
		for name := range strings.FieldsSeq(needed) {
			assert.Contains(t, out, "'"+name+"'", parent)
		}
	}
	out, err := output(t, "helm", "template", "outrigger", chart, "--set=fleet.enabled=true,ui.enabled=true,temporal.embedded.enabled=true",
		"--set=temporal.setup=null,webhook.autoscaling=null,webhook.certManager=null,webhook.annotations=null,fleet.temporal=null,monitoring=null,imagePullSecrets=null,worker.replicas=null")
	require.NoError(t, err, out)
	assert.NotContains(t, out, "<nil>")
}

// If the flag is set first, as the README describes, the Deployment does not change when cert-manager is
// enabled. Therefore, no replica without the flag overwrites the Secret.
func TestCertManagerIsEnabledAfterAllReplicasHaveTheFlag(t *testing.T) {
	const name = "Deployment kruise-system/outrigger-webhook"
	assert.Equal(t, rendered(t, "--set=webhook.args={--external-certificate}")[name], rendered(t, "--set=webhook.certManager.enabled=true")[name])
}

func TestSpec4_16_MatchConditionsAreOffByDefault(t *testing.T) {
	_, _, container := deployed(t, rendered(t), "webhook")
	assert.NotContains(t, container["args"], "--match-conditions")
	for _, role := range []string{"operator", "worker", "webhook"} {
		_, _, container = deployed(t, rendered(t, "--set=webhook.matchConditions=true"), role)
		assert.Equal(t, role == "webhook", slices.Contains(container["args"].([]any), any("--match-conditions")), role)
	}
}

func TestFeatureGatesAreTheOnesOfTheWebhook(t *testing.T) {
	const gate = "SidecarSetPatchPodMetadataDefaultsAllowed=true"
	all := rendered(t, "--set=featureGates="+gate)
	for _, role := range []string{"operator", "worker", "webhook"} {
		_, _, container := deployed(t, all, role)
		args := container["args"].([]any)
		assert.Equal(t, role == "webhook", slices.Contains(args, any("--feature-gates="+gate)), role)
	}
}

// The message contains the path of a typo, so that a user finds the line in the values file.
func TestTheErrorOfATypoNamesItsPlace(t *testing.T) {
	for values, message := range map[string]string{
		"temporal.tls.secretname=mtls":         `at '/temporal/tls': additional properties 'secretname' not allowed`,
		"worker.resources.limit.memory=2Gi":    `at '/worker/resources': additional properties 'limit' not allowed`,
		"webhook.autoscaling.minReplica=3":     `at '/webhook/autoscaling': additional properties 'minReplica' not allowed`,
		"operator.nodeselector.pool=system":    `at '/operator': additional properties 'nodeselector' not allowed`,
		"worker.tolerations[0].effect=NoStart": `at '/worker/tolerations/0/effect': value must be one of`,
		"worker.replicas=many":                 `at '/worker/replicas': got string, want integer`,
	} {
		out, err := output(t, "helm", "template", "outrigger", chart, "--set="+values)
		require.Error(t, err, values)
		assert.Contains(t, out, message, values)
		assert.Equal(t, 1, strings.Count(out, "- at '"), "%s has one error: %s", values, out)
	}
}

// TestTheReadmeHasEachValue compares the table in the README with values.yaml, in both directions. The test
// also compares the defaults that the table shows between backquotes.
func TestTheReadmeHasEachValue(t *testing.T) {
	text, err := os.ReadFile(chart + "/values.yaml")
	require.NoError(t, err)
	var values object
	require.NoError(t, yaml.Unmarshal(text, &values))
	defaults := map[string]string{}
	flatten(t, defaults, "", values)
	readme, err := os.ReadFile(chart + "/README.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(readme), "\n## Values\n")
	require.True(t, found)
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:`([^`]+)`)?").FindAllStringSubmatch(table, -1) {
		paths := []string{row[1]}
		if field, ofRole := strings.CutPrefix(row[1], "<role>"); ofRole {
			paths = []string{"operator" + field, "worker" + field, "webhook" + field}
		}
		for _, path := range paths {
			listed[path] = true
			if assert.Contains(t, defaults, path, "values.yaml lacks a value of the README") && row[2] != "" {
				assert.Equal(t, defaults[path], row[2], path)
			}
		}
	}
	for path := range defaults {
		assert.True(t, listed[path], "the README lacks %s", path)
	}
}

// flatten adds the paths and the defaults of the values without fields. Resources count as one value.
func flatten(t *testing.T, into map[string]string, path string, value any) {
	t.Helper()
	fields, isObject := value.(object)
	if isObject && len(fields) > 0 && !strings.HasSuffix(path, ".resources") {
		for name, field := range fields {
			flatten(t, into, strings.TrimPrefix(path+"."+name, "."), field)
		}
		return
	}
	text, err := json.Marshal(value)
	require.NoError(t, err)
	into[path] = string(text)
	if word, isText := value.(string); isText && word != "" {
		into[path] = word
	}
}

// Clusters without access to the internet mirror the images that the README lists.
func TestTheReadmeHasEachImage(t *testing.T) {
	readme, err := os.ReadFile(chart + "/README.md")
	require.NoError(t, err)
	out, err := output(t, "helm", "template", "outrigger", packaged(t), "--set=temporal.embedded.enabled=true,temporal.setup.enabled=true")
	require.NoError(t, err, out)
	images := regexp.MustCompile(`(?m)^\s*(?:- )?image: "?([^"\s]+)`).FindAllStringSubmatch(out, -1)
	require.Greater(t, len(images), 4)
	for _, image := range images {
		name := strings.TrimSuffix(image[1], ":"+appVersion(t))
		assert.Contains(t, string(readme), "| `"+name+"`")
	}
}

func appVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(chart + "/Chart.yaml")
	require.NoError(t, err)
	var read struct{ AppVersion string }
	require.NoError(t, yaml.Unmarshal(text, &read))
	return read.AppVersion
}

func TestTheNotesNameTheNextCommand(t *testing.T) {
	notes := func(args ...string) string {
		out, err := output(t, "helm", append([]string{"install", "outrigger", packaged(t), "--dry-run=client"}, args...)...)
		require.NoError(t, err, out)
		_, text, _ := strings.Cut(out, "NOTES:")
		return text
	}
	text := notes("--namespace=kruise-system")
	assert.Contains(t, text, "/releases/download/"+appVersion(t)+"/sidecarset.yaml\n  kubectl sidecarset check\n")
	assert.Contains(t, text, "temporal.setup.enabled=true")
	assert.Contains(t, text, "kube-flannel")
	assert.NotContains(t, text, "uninstall this release")
	for _, namespace := range []string{"default", "kube-system"} {
		text := notes("--namespace=" + namespace)
		assert.Contains(t, text, "\n\nWARNING: pods in namespace "+namespace+" get no sidecars, because the webhook excludes the namespace of the release.")
		assert.Contains(t, text, "--namespace kruise-system --create-namespace.\n\nWARNING: users")
	}
	assert.Contains(t, notes("--namespace=mine"), "  kubectl sidecarset check --system-namespace=mine\n")
	assert.Contains(t, notes("--set=temporal.setup.enabled=true"), "outrigger-temporal-setup")
}
