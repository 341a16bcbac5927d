package validation

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func untypedSpec(t *testing.T, text string) map[string]any {
	t.Helper()
	var spec map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &spec), text)
	return spec
}

func TestSpec5_TheProbeIsThePodThatKubernetesWouldGet(t *testing.T) {
	for text, want := range map[string]string{
		// The pod omits the fields of SidecarSets, because only injection reads these fields.
		`containers: [{name: a, image: b, podInjectPolicy: AfterAppContainer, shareVolumePolicy: {type: enabled}, shareVolumeDevicePolicy: {type: enabled}, transferEnv: [{sourceContainerName: x, envName: E}], upgradeStrategy: {upgradeType: ColdUpgrade}, args: [$(E)]}]`: `containers: [{name: a, image: b, args: [$(E)]}]`,
		`containers: [{name: a, image: b, resources: {limits: {cpu: 1}}, resourcesPolicy: {targetContainersMode: sum}}]`:                                                                                                                                                      `containers: [{name: a, image: b}]`,
		`containers: [{name: a, image: b, resources: {limits: {cpu: 1}}, fieldOfTheFuture: {x: y}}]`:                                                                                                                                                                          `containers: [{name: a, image: b, resources: {limits: {cpu: 1}}, fieldOfTheFuture: {x: y}}]`,
		`containers: [{name: a, image: b}, {name: h, image: b, env: [{name: E}], upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]`:                                                                                                                       `containers: [{name: a, image: b}, {name: h-1, image: b, env: [{name: E}]}, {name: h-2, image: e, env: [{name: E}]}]`,
		`{initContainers: [{name: app, image: b, restartPolicy: Always}, {name: appx, image: b, podInjectPolicy: BeforeAppContainer}], containers: []}`:                                                                                                                       `{initContainers: [{name: app, image: b, restartPolicy: Always}, {name: appx, image: b}], containers: [{name: appxx, image: app}]}`,
		`{containers: [{name: a, image: b}], volumes: [{name: unused}, {name: v, sourceOfTheFuture: {}}], imagePullSecrets: [{name: s}], updateStrategy: {paused: true}}`:                                                                                                     `{containers: [{name: a, image: b}], volumes: [{name: unused}, {name: v, sourceOfTheFuture: {}}], imagePullSecrets: [{name: s}]}`,
		`containers: [{name: a, image: b, securityContext: {windowsOptions: {hostProcess: true}}}]`:                                                                                                                                                                           `{hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, containers: [{name: a, image: b, securityContext: {windowsOptions: {hostProcess: true}}}]}`,
	} {
		spec := untypedSpec(t, text)
		expected := untypedSpec(t, want)
		expected["automountServiceAccountToken"] = false
		assert.Equal(t, expected, NewDryRunPod(spec).Spec, text)
		assert.Equal(t, untypedSpec(t, text), spec, "the set's own spec was changed")
	}
	assert.Nil(t, NewDryRunPod(untypedSpec(t, `volumes: [{name: v}]`)), "without containers there is nothing to ask about")
	assert.Equal(t, map[string]any{"containers": []any{map[string]any{}}, "automountServiceAccountToken": false}, NewDryRunPod(untypedSpec(t, `containers: [null]`)).Spec)
}

func TestSpec5_ErrorsOfTheDryRunNameFieldsOfTheSet(t *testing.T) {
	pod := NewDryRunPod(untypedSpec(t, `{containers: [{name: a}, {name: h, upgradeStrategy: {upgradeType: HotUpgrade}}, {name: b}], initContainers: [{name: i}], volumes: [{name: v}]}`))
	onlyInit := NewDryRunPod(untypedSpec(t, `initContainers: [{name: i}]`))
	for _, test := range []struct {
		pod         *DryRunPod
		field, want string
	}{
		{pod, "spec.containers[0].ports[0].name", "spec.containers[0].ports[0].name"},
		{pod, "spec.containers[1].image", "spec.containers[1].image"},
		{pod, "spec.containers[2].image", "spec.containers[1].upgradeStrategy.hotUpgradeEmptyImage"},
		{pod, "spec.containers[2].imagePullPolicy", "spec.containers[1].imagePullPolicy"},
		{pod, "spec.containers[3]", "spec.containers[2]"},
		{pod, "spec.initContainers[0].lifecycle", "spec.initContainers[0].lifecycle"},
		{pod, "spec.volumes[0].hostPath.type", "spec.volumes[0].hostPath.type"},
		{pod, "spec.imagePullSecrets[0].name", "spec.imagePullSecrets[0].name"},
		{pod, "spec.hostNetwork", "spec"},
		{pod, "spec.containers[9].name", "spec"},
		{onlyInit, "spec.containers[0].name", "spec"},
	} {
		causes := test.pod.Causes([]metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: test.field, Message: "bad"}}, nil)
		require.Len(t, causes, 1)
		assert.Equal(t, test.want, causes[0].Field, test.field)
		assert.Equal(t, metav1.CauseTypeFieldValueInvalid, causes[0].Type)
		if test.want == "spec" {
			assert.Contains(t, causes[0].Message, test.field+": bad")
		} else {
			assert.Equal(t, "bad", causes[0].Message)
		}
	}
}

func TestSpec5_NothingIsSaidTwice(t *testing.T) {
	pod := NewDryRunPod(untypedSpec(t, `containers: [{name: h, upgradeStrategy: {upgradeType: HotUpgrade}}]`))
	cause := func(field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}
	}
	causes := pod.Causes([]metav1.StatusCause{
		cause("spec.containers[0].ports[0].containerPort", "too big"), cause("spec.containers[1].ports[0].containerPort", "too big"),
		cause("spec.containers[0].workingDir", "one"), cause("spec.containers[0].workingDir", "two"),
		cause("spec.containers[0].image", "empty"),
	}, []metav1.StatusCause{cause("spec.containers[0].image", "name the image")})
	assert.Equal(t, []metav1.StatusCause{
		cause("spec.containers[0].ports[0].containerPort", "too big"),
		cause("spec.containers[0].workingDir", "one"), cause("spec.containers[0].workingDir", "two"),
	}, causes)
}
