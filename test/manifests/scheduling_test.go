package manifests

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/outrigger/outrigger/dev/cluster"
)

func TestEachRoleIsScheduledByItsValues(t *testing.T) {
	const values = `: {nodeSelector: {pool: system}, affinity: {nodeAffinity: {}}, tolerations: [{operator: Exists}], topologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}], priorityClassName: mine}
`
	file := t.TempDir() + "/values.yaml"
	require.NoError(t, os.WriteFile(file, []byte("operator"+values+"worker"+values+"webhook"+values), 0o600))
	all, shipped := rendered(t, "--values="+file), rendered(t)
	for _, role := range []string{"operator", "worker", "webhook"} {
		_, pod, _ := deployed(t, all, role)
		assert.Equal(t, object{"pool": "system"}, pod["nodeSelector"], role)
		assert.Equal(t, object{"nodeAffinity": object{}}, pod["affinity"], role)
		assert.Equal(t, []any{object{"operator": "Exists"}}, pod["tolerations"], role)
		assert.Equal(t, "zone", pod["topologySpreadConstraints"].([]any)[0].(object)["topologyKey"], role)
		assert.Equal(t, "mine", pod["priorityClassName"], role)
		_, before, _ := deployed(t, shipped, role)
		assert.Equal(t, "kubernetes.io/hostname", before["topologySpreadConstraints"].([]any)[0].(object)["topologyKey"], role)
	}
}

func TestTheAutoscalerSetsTheReplicasOfTheWebhook(t *testing.T) {
	const autoscaler, disruptions = "HorizontalPodAutoscaler kruise-system/outrigger-webhook", "PodDisruptionBudget kruise-system/outrigger-webhook"
	assert.NotContains(t, rendered(t), autoscaler)
	all := rendered(t, "--set=webhook.replicas=1,webhook.autoscaling.enabled=true,webhook.autoscaling.maxReplicas=9")
	spec, _, _ := deployed(t, all, "webhook")
	assert.NotContains(t, spec, "replicas", "each upgrade would undo what the autoscaler has set")
	assert.Contains(t, all, disruptions)
	for _, role := range []string{"operator", "worker"} {
		spec, _, _ := deployed(t, all, role)
		assert.EqualValues(t, 2, spec["replicas"], role)
	}
	var hpa autoscalingv2.HorizontalPodAutoscaler
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(all[autoscaler], &hpa, true))
	assert.Equal(t, "outrigger-webhook", hpa.Spec.ScaleTargetRef.Name)
	assert.Equal(t, []int32{2, 9, 80}, []int32{*hpa.Spec.MinReplicas, hpa.Spec.MaxReplicas, *hpa.Spec.Metrics[0].Resource.Target.AverageUtilization})
	assert.NotContains(t, rendered(t, "--set=webhook.autoscaling.enabled=true,webhook.autoscaling.minReplicas=1"), disruptions)
}

// With null, Helm removes a value. Without a replica of the webhook, the API server rejects new pods.
func TestARoleWithoutReplicasKeepsItsNumberOfPods(t *testing.T) {
	for _, role := range []string{"operator", "worker", "webhook"} {
		spec, _, _ := deployed(t, rendered(t, "--set="+role+".replicas=null"), role)
		assert.NotContains(t, spec, "replicas", role)
	}
}

// The Service forwards to the port with the name webhook.
func TestThePortOfTheWebhookIsThePortOfItsContainer(t *testing.T) {
	for port, args := range map[int][]string{9443: nil, 10250: {"--set=webhook.args={--port=10250}"}} {
		_, _, container := deployed(t, rendered(t, args...), "webhook")
		assert.Contains(t, fmt.Sprint(container["ports"]), fmt.Sprintf("containerPort:%d name:webhook", port))
	}
}

// kubectl scale writes the same subresource as the autoscaler.
func TestUpgradesKeepTheReplicasThatTheAutoscalerSets(t *testing.T) {
	t.Parallel()
	b := newBare(t, cluster.Options{WithoutTemporal: true})
	release := packaged(t)
	const enabled = "--set=webhook.autoscaling.enabled=true"
	assertReplicas := func(want int, message string) {
		t.Helper()
		deployment, err := b.client.AppsV1().Deployments("kruise-system").Get(t.Context(), "outrigger-webhook", metav1.GetOptions{})
		require.NoError(t, err)
		require.EqualValues(t, want, *deployment.Spec.Replicas, message)
	}
	scale := func(replicas string) {
		t.Helper()
		kubectl(t, b.cluster, "", "--namespace=kruise-system", "scale", "deployment/outrigger-webhook", "--replicas="+replicas)
	}
	b.helm("install", "outrigger", release, "--create-namespace")
	b.helm("upgrade", "outrigger", release, enabled)
	assertReplicas(1, "the README names this")
	b.helm("upgrade", "outrigger", release, "--reset-values")
	assertReplicas(2, "the default")
	scale("3")
	b.helm("upgrade", "outrigger", release, enabled)
	// Helm 3 removes a field that was in the previous release, even if another client has set the field
	// afterwards.
	kept := map[bool]int{true: 1, false: 3}[os.Getenv("HELM") == "helm3"]
	assertReplicas(kept, "the README has these commands")
	scale("5")
	b.helm("upgrade", "outrigger", release, enabled, "--set=worker.replicas=1")
	assertReplicas(5, "as the autoscaler has set")
}
