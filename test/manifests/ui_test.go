package manifests

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func rulesOf(t *testing.T, all map[string]object, name string) []any {
	t.Helper()
	role, ok := all[name]
	require.True(t, ok, name)
	return role["rules"].([]any)
}

func TestSpec8_9_ThePagesMayOnlyRead(t *testing.T) {
	assert.NotContains(t, rendered(t), "Deployment kruise-system/outrigger-ui", "off by default")
	all := rendered(t, "--set=ui.enabled=true,fleet.enabled=true,fleet.temporal.address=hub:7233")
	for _, role := range []string{"ClusterRole /outrigger-ui", "Role kruise-system/outrigger-ui"} {
		for _, rule := range rulesOf(t, all, role) {
			assert.Subset(t, []any{"get", "list", "watch"}, rule.(object)["verbs"])
			assert.NotContains(t, rule.(object)["resources"], "secrets")
		}
	}
	spec, pod, container := deployed(t, all, "ui")
	assert.EqualValues(t, 1, spec["replicas"])
	assert.Equal(t, "outrigger-ui", pod["serviceAccountName"])
	assert.Equal(t, "Always", pod["restartPolicy"])
	assert.NotContains(t, pod, "priorityClassName")
	assert.Contains(t, container["args"], "--fleet")
	assert.Contains(t, container["args"], "--fleet-temporal-address=hub:7233")
	assert.NotContains(t, container["args"], "--bind-address=:8443", "only port-forward reaches the pages")
	assert.NotContains(t, all, "Service kruise-system/outrigger-ui")
	assert.NotContains(t, all, "ClusterRoleBinding /outrigger-ui-reviews")
}

func TestSpec8_9_AServiceOfThePagesAuthenticates(t *testing.T) {
	all := rendered(t, "--set=ui.enabled=true,ui.tls.secretName=pages,temporal.apiKey.secretName=key,operator.podSpec.hostNetwork=true")
	_, pod, container := deployed(t, all, "ui")
	assert.NotContains(t, pod, "hostNetwork", "processes of the node must not reach the pages")
	for policy, want := range map[string]any{"None": "None", "ClusterFirstWithHostNet": nil} {
		_, pod, _ := deployed(t, rendered(t, "--set=ui.enabled=true,operator.podSpec.dnsPolicy="+policy), "ui")
		assert.Equal(t, want, pod["dnsPolicy"])
	}
	assert.Contains(t, container["args"], "--bind-address=:8443")
	assert.Contains(t, container["args"], "--tls-cert-file=/etc/outrigger/tls/tls.crt")
	assert.Len(t, container["volumeMounts"], 2)
	assert.Contains(t, pod["volumes"], object{"name": "tls", "secret": object{"secretName": "pages"}})
	assert.Contains(t, all, "Service kruise-system/outrigger-ui")
	reviews := all["ClusterRoleBinding /outrigger-ui-reviews"]["roleRef"].(object)
	assert.Equal(t, "system:auth-delegator", reviews["name"])
}
