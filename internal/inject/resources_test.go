package inject

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

func quantities(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu != "" {
		list[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

func sized(name string, limits, requests corev1.ResourceList) corev1.Container {
	container := fixture.Container(name)
	container.Resources = corev1.ResourceRequirements{Limits: limits, Requests: requests}
	return container
}

func TestSpec4_7_ResourcesFromAppContainers(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	native := sized("native", quantities("1", "1Gi"), quantities("1", "1Gi"))
	native.RestartPolicy = &always
	old := sized("old", quantities("100", ""), quantities("100", ""))
	old.Env = []corev1.EnvVar{env("IS_INJECTED", "true")}
	initial := sized("init", quantities("50", ""), quantities("50", ""))
	pod := fixture.Pod(
		sized("a1", quantities("400m", "512Mi"), quantities("100m", "100Mi")),
		sized("a2", quantities("1", "1Gi"), quantities("250m", "200Mi")),
		sized("open", nil, quantities("", "1Mi")),
		sized("zero", quantities("0", ""), nil),
		old,
	)
	pod.Spec.InitContainers = []corev1.Container{initial, native}

	for name, test := range map[string]struct {
		policy, want string
	}{
		"sum":                         {`{targetContainersMode: sum, targetContainersNameRegex: "^a.$", resourcesExpr: {limits: {cpu: cpu*50%, memory: memory*0.5}, requests: {cpu: "max(cpu*0.1, 50m)", memory: 100Mi}}}`, `{limits: {cpu: 700m, memory: 768Mi}, requests: {cpu: 50m, memory: 100Mi}}`},
		"max":                         {`{targetContainersMode: max, targetContainersNameRegex: "^a.$", resourcesExpr: {limits: {cpu: cpu, memory: memory}, requests: {cpu: cpu, memory: memory}}}`, `{limits: {cpu: "1", memory: 1Gi}, requests: {cpu: 250m, memory: 200Mi}}`},
		"native sidecars count":       {`{targetContainersMode: sum, targetContainersNameRegex: "a1|native", resourcesExpr: {limits: {cpu: cpu}}}`, `{limits: {cpu: 1400m}}`},
		"a target without limit":      {`{targetContainersMode: sum, targetContainersNameRegex: "a1|open", resourcesExpr: {limits: {cpu: cpu, memory: 5Mi}}}`, `{}`},
		"a target with limit 0":       {`{targetContainersMode: sum, targetContainersNameRegex: "a1|zero", resourcesExpr: {limits: {cpu: "max(cpu, 50m)"}}}`, `{}`},
		"a target without request":    {`{targetContainersMode: sum, targetContainersNameRegex: "a1|open", resourcesExpr: {requests: {cpu: cpu, memory: memory}}}`, `{requests: {cpu: 100m, memory: 101Mi}}`},
		"old sidecars do not count":   {`{targetContainersMode: sum, targetContainersNameRegex: ".*", resourcesExpr: {requests: {cpu: cpu}}}`, `{requests: {cpu: 1350m}}`},
		"CPU up to millis":            {`{targetContainersMode: max, targetContainersNameRegex: "a1", resourcesExpr: {requests: {cpu: cpu/3}}}`, `{requests: {cpu: 34m}}`},
		"exact halves are not raised": {`{targetContainersMode: max, targetContainersNameRegex: "a1", resourcesExpr: {requests: {cpu: cpu*0.3+0.07}}}`, `{requests: {cpu: 100m}}`},
		"memory up to bytes":          {`{targetContainersMode: max, targetContainersNameRegex: "a1", resourcesExpr: {requests: {memory: 10/3}}}`, `{requests: {memory: "4"}}`},
		"large and exact":             {`{targetContainersMode: max, targetContainersNameRegex: "a1", resourcesExpr: {requests: {memory: 1Ei/3*3}}}`, `{requests: {memory: 1Ei}}`},
		"no resources":                {`{targetContainersMode: max, targetContainersNameRegex: ".*"}`, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			side := fixture.Sidecar("side", func(s *v1alpha1.SidecarContainer) {
				require.NoError(t, yaml.Unmarshal([]byte(test.policy), &s.ResourcesPolicy))
			})
			got := injectInto(t, pod, fixture.SidecarSet("s", side)).Spec.Containers[0].Resources
			written, err := yaml.Marshal(got)
			require.NoError(t, err)
			assert.YAMLEq(t, test.want, string(written))
		})
	}
}

func TestSpec4_7_QuantitiesAreReadExactly(t *testing.T) {
	for text, want := range map[string]string{"1500m": "3/2", "1Ki": "1024", "1n": "1/1000000000", "5E": "5000000000000000000", "1e3": "1000", "0": "0"} {
		value, err := exact(resource.MustParse(text))
		require.NoError(t, err, text)
		assert.Equal(t, want, value.RatString(), text)
	}
}

// The API server accepts a quantity such as 1e2000000000. The computation of its exact value would take hours
// and exhaust the memory.
func TestSpec4_15_NoQuantityOfAPodStallsInjection(t *testing.T) {
	var pod corev1.Pod
	require.NoError(t, json.Unmarshal([]byte(`{"spec": {"containers": [{"name": "app", "image": "app:1", "resources": {
		"requests": {"cpu": "1e2000000000"}, "limits": {"memory": "1e2000000000"}}}]}}`), &pod))
	for _, mode := range []v1alpha1.TargetContainersModeType{v1alpha1.TargetContainersModeSum, v1alpha1.TargetContainersModeMax} {
		for want, expressions := range map[string]v1alpha1.ResourcesExpr{
			"requests: cpu of container app: the result does not fit":  {Requests: &v1alpha1.ResourceExprRequests{CPU: "cpu*50%"}},
			"limits: memory of container app: the result does not fit": {Limits: &v1alpha1.ResourceExprLimits{Memory: "memory*50%"}},
		} {
			side := fixture.Sidecar("side", func(c *v1alpha1.SidecarContainer) {
				c.ResourcesPolicy = &v1alpha1.ResourcesPolicy{TargetContainersMode: mode, TargetContainersNameRegex: ".*", ResourcesExpr: expressions}
			})
			set, err := Prepare(fixture.SidecarSet("s", side), "r")
			require.NoError(t, err)
			_, err = Pod(pod.DeepCopy(), []*Set{set}, metav1.Now())
			require.ErrorContains(t, err, want)
		}
	}
}
