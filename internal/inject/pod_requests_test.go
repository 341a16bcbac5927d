package inject

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/fixture"
)

// The API server rejects a pod whose containers together request more than the pod.
func TestSpec4_7_RequestsOfThePodIncludeSidecars(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	native := sized("native", nil, quantities("30m", ""))
	native.RestartPolicy = &always
	side := fixture.Sidecar("side")
	side.Resources.Requests = quantities("200m", "100Mi")
	limited := fixture.Sidecar("limited")
	limited.Resources.Limits = quantities("100m", "28Mi")
	nativeSide := fixture.Sidecar("native-side")
	nativeSide.Container = native
	nativeSide.Name = "native-side"
	for name, c := range map[string]struct {
		requests, want corev1.ResourceList
		initial        string
	}{
		"the sum of the app containers": {quantities("1", "512Mi"), quantities("1360m", "640Mi"), "0"},
		"more than all containers":      {quantities("2", "1Gi"), quantities("2", "1Gi"), "0"},
		"one resource":                  {quantities("1", ""), quantities("1360m", ""), "0"},
		"no requests of the pod":        {nil, nil, "0"},
		"a large init container":        {quantities("1", "512Mi"), quantities("5030m", "640Mi"), "5"},
		"a quantity too large":          {quantities("1", ""), quantities("1", ""), "1e100"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := fixture.Pod(sized("app", nil, quantities("1", "512Mi")))
			pod.Spec.InitContainers = []corev1.Container{native, sized("setup", nil, quantities(c.initial, ""))}
			pod.Spec.Resources = &corev1.ResourceRequirements{Limits: quantities("4", "2Gi"), Requests: c.requests}
			set := fixture.SidecarSet("s", side, limited)
			set.Spec.InitContainers = append(set.Spec.InitContainers, nativeSide)
			resources := injectInto(t, pod, set).Spec.Resources
			assert.Equal(t, quantities("4", "2Gi"), resources.Limits)
			assert.Len(t, resources.Requests, len(c.want))
			for resource, want := range c.want {
				got := resources.Requests[resource]
				assert.Zero(t, want.Cmp(got), "%s: %s", resource, got.String())
			}
		})
	}
	unmatched := fixture.Pod(sized("app", nil, quantities("1", "")))
	unmatched.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("100m", "")}
	assert.Equal(t, unmatched, injectInto(t, unmatched), "a pod without sidecars does not change")
}
