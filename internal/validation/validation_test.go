package validation

import (
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// base is a set without fault; changes are merged into it (RFC 7396).
const base = `
metadata: {name: s}
spec:
  selector: {matchLabels: {app: web}}
  containers: [{name: side, image: busybox}]
`

func read(t *testing.T, texts ...string) *v1alpha1.SidecarSet {
	t.Helper()
	document := []byte("{}")
	for _, text := range texts {
		change, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err, text)
		document, err = jsonpatch.MergePatch(document, change)
		require.NoError(t, err, text)
	}
	set := &v1alpha1.SidecarSet{}
	require.NoError(t, yaml.UnmarshalStrict(document, set), string(document))
	return set
}

// complaints are "field: type", in the order found.
func complaints(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Field+": "+string(err.Type))
	}
	return all
}

func TestSpec5_RefusalsNameTheField(t *testing.T) {
	for _, test := range []struct{ change, want string }{
		{`{}`, ``},
		{`metadata: {name: a.b}`, `metadata.name: FieldValueInvalid`},
		{`metadata: {name: ` + strings.Repeat("a", 64) + `}`, `metadata.name: FieldValueInvalid`},
		{`metadata: {name: ` + strings.Repeat("a", 63) + `}`, ``},
		{`spec: {selector: null}`, `spec.selector: FieldValueRequired`},
		{`spec: {selector: {matchLabels: null}}`, `spec.selector: FieldValueRequired`},
		{`spec: {selector: {matchExpressions: [{key: a, operator: Is}]}}`, `spec.selector.matchExpressions[0].operator: FieldValueInvalid`},
		{`spec: {namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}`, `spec.namespaceSelector.matchExpressions[0].values: FieldValueRequired`},
		{`spec: {namespaceSelector: {}}`, ``},
		{`spec: {namespace: A_B}`, `spec.namespace: FieldValueInvalid`},
		{`spec: {containers: []}`, `spec.containers: FieldValueRequired`},
		{`spec: {revisionHistoryLimit: -1}`, `spec.revisionHistoryLimit: FieldValueInvalid`},
		{`spec: {imagePullSecrets: [{}]}`, `spec.imagePullSecrets[0].name: FieldValueRequired`},
		{`spec: {volumes: [{}, {name: A}, {name: v}, {name: v}]}`, `spec.volumes[0].name: FieldValueRequired, spec.volumes[1].name: FieldValueInvalid, spec.volumes[3].name: FieldValueDuplicate`},
	} {
		checkRefusal(t, test.change, test.want)
	}
}

func checkRefusal(t *testing.T, change, want string) {
	t.Helper()
	set := read(t, base, change)
	Default(set)
	assert.Equal(t, want, strings.Join(complaints(Validate(set)), ", "), change)
}

func TestSpec5_RefusedContainers(t *testing.T) {
	for container, want := range map[string]string{
		`{name: a, image: b}`:    ``,
		`{image: b}`:             `name: FieldValueRequired`,
		`{name: A, image: b}`:    `name: FieldValueInvalid`,
		`{name: a}`:              `image: FieldValueRequired`,
		`{name: a, image: "b "}`: `image: FieldValueInvalid`,
		`{name: i, image: b}`:    `name: FieldValueDuplicate`,
		`{name: a, image: b, restartPolicy: Always}`:                                                                                         `restartPolicy: FieldValueForbidden`,
		`{name: a, image: b, imagePullPolicy: Maybe}`:                                                                                        `imagePullPolicy: FieldValueNotSupported`,
		`{name: a, image: b, podInjectPolicy: Sideways}`:                                                                                     `podInjectPolicy: FieldValueNotSupported`,
		`{name: a, image: b, shareVolumePolicy: {type: yes-please}}`:                                                                         `shareVolumePolicy.type: FieldValueNotSupported`,
		`{name: a, image: b, shareVolumeDevicePolicy: {type: yes-please}}`:                                                                   `shareVolumeDevicePolicy.type: FieldValueNotSupported`,
		`{name: a, image: b, shareVolumeDevicePolicy: {type: enabled}}`:                                                                      ``,
		`{name: a, image: b, upgradeStrategy: {upgradeType: Warm}}`:                                                                          `upgradeStrategy.upgradeType: FieldValueNotSupported`,
		`{name: a, image: b, upgradeStrategy: {upgradeType: HotUpgrade}}`:                                                                    `upgradeStrategy.hotUpgradeEmptyImage: FieldValueRequired`,
		`{name: a, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}`:                                           ``,
		`{name: ` + strings.Repeat("a", 62) + `, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}`:             `name: FieldValueInvalid, name: FieldValueInvalid`,
		`{name: h, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}`:                                           `name: FieldValueDuplicate`,
		`{name: a, image: b, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b}]}`:                                            ``,
		`{name: a, image: b, volumeMounts: [{name: w, mountPath: /a}]}`:                                                                      `volumeMounts[0].name: FieldValueNotFound`,
		`{name: a, image: b, volumeMounts: [{mountPath: /a}]}`:                                                                               `volumeMounts[0].name: FieldValueRequired`,
		`{name: a, image: b, volumeMounts: [{name: v}]}`:                                                                                     `volumeMounts[0].mountPath: FieldValueRequired`,
		`{name: a, image: b, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]}`:                                            `volumeMounts[1].mountPath: FieldValueInvalid`,
		`{name: a, image: b, volumeDevices: [{name: w, devicePath: /a}]}`:                                                                    `volumeDevices[0].name: FieldValueNotFound`,
		`{name: a, image: b, volumeDevices: [{name: v}]}`:                                                                                    `volumeDevices[0].devicePath: FieldValueRequired`,
		`{name: a, image: b, transferEnv: [{sourceContainerName: x, envName: E}, {sourceContainerName: x, envNames: [E]}]}`:                  ``,
		`{name: a, image: b, transferEnv: [{envName: E}]}`:                                                                                   `transferEnv[0].sourceContainerName: FieldValueRequired`,
		`{name: a, image: b, transferEnv: [{sourceContainerName: x}]}`:                                                                       `transferEnv[0].envName: FieldValueRequired`,
		`{name: a, image: b, transferEnv: [{envName: E, sourceContainerNameFrom: {}}]}`:                                                      `transferEnv[0].sourceContainerNameFrom.fieldRef: FieldValueRequired`,
		`{name: a, image: b, transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}`:                  `transferEnv[0].sourceContainerNameFrom.fieldRef.fieldPath: FieldValueNotSupported`,
		`{name: a, image: b, transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: metadata.labels}}}]}`:                `transferEnv[0].sourceContainerNameFrom.fieldRef.fieldPath: FieldValueNotSupported`,
		`{name: a, image: b, transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: metadata.name}}}]}`:                  ``,
		`{name: a, image: b, transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: "metadata.labels['k']"}}}]}`:         ``,
		`{name: a, image: b, transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: "metadata.annotations['a/b']"}}}]}`:  ``,
		`{name: a, image: b, resourcesPolicy: {targetContainersMode: sum, resourcesExpr: {limits: {cpu: cpu*2}, requests: {memory: 1Gi}}}}`:  ``,
		`{name: a, image: b, resourcesPolicy: {targetContainersMode: avg}}`:                                                                  `resourcesPolicy.targetContainersMode: FieldValueNotSupported`,
		`{name: a, image: b, resourcesPolicy: {targetContainersMode: max, targetContainersNameRegex: "("}}`:                                  `resourcesPolicy.targetContainersNameRegex: FieldValueInvalid`,
		`{name: a, image: b, resourcesPolicy: {targetContainersMode: max, resourcesExpr: {limits: {cpu: memory}, requests: {memory: cpu}}}}`: `resourcesPolicy.resourcesExpr.limits.cpu: FieldValueInvalid, resourcesPolicy.resourcesExpr.requests.memory: FieldValueInvalid`,
		`{name: a, image: b, resources: {limits: {cpu: 1}}, resourcesPolicy: {targetContainersMode: max}}`:                                   `resources: FieldValueForbidden`,
	} {
		set := read(t, base, `spec: {volumes: [{name: v}], updateStrategy: {type: NotUpdate}, initContainers: [{name: i, image: b}, {name: h-1, image: b}], containers: [`+container+`]}`)
		Default(set)
		got := strings.ReplaceAll(strings.Join(complaints(Validate(set)), ", "), "spec.containers[0].", "")
		assert.Equal(t, want, got, container)
	}
}

func TestSpec5_RefusedInitContainers(t *testing.T) {
	for text, want := range map[string]string{
		`{initContainers: [{name: i, image: b}]}`:                                                                      ``,
		`{initContainers: [{name: i, image: b, restartPolicy: Always}]}`:                                               `spec.updateStrategy.type: FieldValueInvalid`,
		`{initContainers: [{name: i, image: b, restartPolicy: Always}], updateStrategy: {type: NotUpdate}}`:            ``,
		`{initContainers: [{name: i, image: b, restartPolicy: Never}]}`:                                                `spec.initContainers[0].restartPolicy: FieldValueNotSupported`,
		`{initContainers: [{name: i, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]}`: `spec.initContainers[0].upgradeStrategy.upgradeType: FieldValueInvalid`,
		`{initContainers: [{name: i, image: b}], containers: []}`:                                                      ``,
	} {
		checkRefusal(t, "spec: "+text, want)
	}
}

func TestSpec5_RefusedStrategies(t *testing.T) {
	for text, want := range map[string]string{
		`updateStrategy: {type: Recreate}`:                                         `spec.updateStrategy.type: FieldValueNotSupported`,
		`updateStrategy: {partition: 5, maxUnavailable: 20%}`:                      ``,
		`updateStrategy: {partition: 100%, maxUnavailable: 0}`:                     ``,
		`updateStrategy: {partition: -1}`:                                          `spec.updateStrategy.partition: FieldValueInvalid`,
		`updateStrategy: {maxUnavailable: "5"}`:                                    `spec.updateStrategy.maxUnavailable: FieldValueInvalid`,
		`updateStrategy: {maxUnavailable: 101%}`:                                   `spec.updateStrategy.maxUnavailable: FieldValueInvalid`,
		`updateStrategy: {maxUnavailable: -5%}`:                                    `spec.updateStrategy.maxUnavailable: FieldValueInvalid`,
		`updateStrategy: {maxUnavailable: 9999999999999999999%}`:                   `spec.updateStrategy.maxUnavailable: FieldValueInvalid`,
		`updateStrategy: {selector: {matchLabels: {a: b}}}`:                        ``,
		`updateStrategy: {selector: {matchLabels: {a: b}}, partition: 0%}`:         ``,
		`updateStrategy: {selector: {matchLabels: {a: b}}, partition: 2}`:          `spec.updateStrategy.partition: FieldValueForbidden`,
		`updateStrategy: {selector: {matchLabels: {a: b}}, partition: 100%}`:       `spec.updateStrategy.partition: FieldValueForbidden`,
		`updateStrategy: {selector: {matchExpressions: [{key: a, operator: Is}]}}`: `spec.updateStrategy.selector.matchExpressions[0].operator: FieldValueInvalid`,
		`updateStrategy: {priorityStrategy: {orderPriority: [{orderedKey: a}], weightPriority: [{weight: 1, matchSelector: {matchLabels: {a: b}}}]}}`: `spec.updateStrategy.priorityStrategy: FieldValueForbidden`,
		`updateStrategy: {priorityStrategy: {orderPriority: [{orderedKey: ""}]}}`:                                                                     `spec.updateStrategy.priorityStrategy.orderPriority[0].orderedKey: FieldValueRequired`,
		`updateStrategy: {priorityStrategy: {weightPriority: [{weight: 101}, {weight: -1}, {weight: 0}, {weight: 100}]}}`:                             `spec.updateStrategy.priorityStrategy.weightPriority[0].weight: FieldValueInvalid, spec.updateStrategy.priorityStrategy.weightPriority[1].weight: FieldValueInvalid`,
		`updateStrategy: {priorityStrategy: {weightPriority: [{weight: 1, matchSelector: {matchExpressions: [{key: a, operator: Is}]}}]}}`:            `spec.updateStrategy.priorityStrategy.weightPriority[0].matchSelector.matchExpressions[0].operator: FieldValueInvalid`,
		`updateStrategy: {scatterStrategy: [{key: a, value: b}, {key: a, value: c}]}`:                                                                 ``,
		`updateStrategy: {scatterStrategy: [{key: a, value: b}, {key: a, value: b}]}`:                                                                 `spec.updateStrategy.scatterStrategy[1]: FieldValueDuplicate`,
		`updateStrategy: {scatterStrategy: [{value: b}]}`:                                                                                             `spec.updateStrategy.scatterStrategy[0].key: FieldValueRequired`,
		`injectionStrategy: {revision: {}}`:                                         `spec.injectionStrategy.revision: FieldValueRequired`,
		`injectionStrategy: {revision: {revisionName: ""}}`:                         `spec.injectionStrategy.revision: FieldValueRequired`,
		`injectionStrategy: {revision: {customVersion: a, policy: Never}}`:          `spec.injectionStrategy.revision.policy: FieldValueNotSupported`,
		`injectionStrategy: {revision: {revisionName: a, policy: Partial}}`:         ``,
		`patchPodMetadata: [{annotations: {a: b}, patchPolicy: Maybe}]`:             `spec.patchPodMetadata[0].patchPolicy: FieldValueNotSupported`,
		`patchPodMetadata: [{annotations: {a: b}}, {annotations: {a: c}}]`:          `spec.patchPodMetadata[1].annotations[a]: FieldValueDuplicate`,
		`patchPodMetadata: [{annotations: {"a b": c}}]`:                             `spec.patchPodMetadata[0].annotations[a b]: FieldValueInvalid`,
		`patchPodMetadata: [{annotations: {a: "{"}, patchPolicy: MergePatchJson}]`:  `spec.patchPodMetadata[0].annotations[a]: FieldValueInvalid`,
		`patchPodMetadata: [{annotations: {a: "{}"}, patchPolicy: MergePatchJson}]`: ``,
	} {
		checkRefusal(t, "spec: {"+text+"}", want)
	}
}

func TestSpec5_TheWhitelistDecidesAboutMetadata(t *testing.T) {
	const rules = `{"rules":[{"selector":{"matchLabels":{"kind":"log"}},"allowedAnnotationKeyExprs":["^log/.*$"]},{"allowedAnnotationKeyExprs":["^free$"]}]}`
	set := func(labels string) *v1alpha1.SidecarSet {
		return read(t, base, `metadata: {labels: {`+labels+`}}`, `spec: {patchPodMetadata: [{annotations: {free: a, log/b: c}}]}`)
	}
	for _, test := range []struct{ whitelist, labels, want string }{
		{"", "kind: log", "spec.patchPodMetadata[0].annotations[free]: FieldValueForbidden, spec.patchPodMetadata[0].annotations[log/b]: FieldValueForbidden"},
		{rules, "kind: log", ""},
		{rules, "kind: other", "spec.patchPodMetadata[0].annotations[log/b]: FieldValueForbidden"},
	} {
		whitelist, err := ParseWhitelist(test.whitelist)
		require.NoError(t, err)
		assert.Equal(t, test.want, strings.Join(complaints(ValidateMetadata(set(test.labels), whitelist)), ", "))
	}
	for _, broken := range []string{`[`, `{"rules":[{"allowedAnnotationKeyExprs":["("]}]}`, `{"rules":[{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}]}`} {
		_, err := ParseWhitelist(broken)
		require.ErrorContains(t, err, v1alpha1.MetadataWhitelistKey)
	}
}

func TestSpec5_RunningPodsCannotGainContainersOrTwins(t *testing.T) {
	old := read(t, base, `spec: {containers: [{name: a, image: b}, {name: h, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]}`)
	Default(old)
	for containers, want := range map[string]string{
		`[{name: a, image: c}]`:                      ``,
		`[{name: b, image: b}]`:                      `spec.containers[0].name: FieldValueForbidden`,
		`[{name: a, image: b}, {name: b, image: b}]`: `spec.containers[1].name: FieldValueForbidden`,
		`[{name: h, image: b}]`:                      `spec.containers[0].upgradeStrategy.upgradeType: FieldValueForbidden`,
		`[{name: h, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: other}}]`: ``,
	} {
		set := read(t, base, "spec: {containers: "+containers+"}")
		Default(set)
		assert.Equal(t, want, strings.Join(complaints(ValidateUpdate(set, old)), ", "), containers)
	}
}

func TestSpec5_PinnedRevisionsExist(t *testing.T) {
	revisions := `[{"metadata":{"name":"s-1","labels":{"apps.kruise.io/sidecarset-custom-version":"v1"}}}]`
	var known []appsv1.ControllerRevision
	require.NoError(t, yaml.Unmarshal([]byte(revisions), &known))
	for pin, want := range map[string]string{
		`{revisionName: s-1}`:                    ``,
		`{revisionName: s-2}`:                    `spec.injectionStrategy.revision.revisionName: FieldValueNotFound`,
		`{revisionName: s-2, customVersion: v1}`: `spec.injectionStrategy.revision.revisionName: FieldValueNotFound`,
		`{customVersion: v1}`:                    ``,
		`{customVersion: mine}`:                  ``,
		`{customVersion: v2}`:                    `spec.injectionStrategy.revision.customVersion: FieldValueNotFound`,
	} {
		set := read(t, base, `metadata: {labels: {apps.kruise.io/sidecarset-custom-version: mine}}`, `spec: {injectionStrategy: {revision: `+pin+`}}`)
		assert.Equal(t, want, strings.Join(complaints(ValidatePinned(set, known)), ", "), pin)
	}
	assert.Empty(t, ValidatePinned(read(t, base), nil))
}
