package validation

import (
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
)

// base is a valid SidecarSet. Tests merge changes into base (RFC 7396).
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

// merged returns a copy of the SidecarSet, changed by a JSON merge patch (RFC 7396).
func merged(t *testing.T, set *v1alpha1.SidecarSet, change string) *v1alpha1.SidecarSet {
	t.Helper()
	whole, err := yaml.Marshal(set)
	require.NoError(t, err)
	return read(t, string(whole), change)
}

// fieldErrors returns each error as "field: type", in the order found.
func fieldErrors(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Field+": "+string(err.Type))
	}
	return all
}

// rejections maps changes of base to the expected errors.
type rejections map[string]string

// check compares the errors of Validate with the expected errors, and requires that every error names a remedy.
func (r rejections) check(t *testing.T) {
	t.Helper()
	for change, want := range r {
		set := read(t, base, change)
		defaults.Write(set)
		errs := Validate(set)
		assert.Equal(t, want, strings.Join(fieldErrors(errs), ", "), change)
		for _, err := range errs {
			assert.NotEmpty(t, err.Detail, "%s: %v", change, err)
		}
		checkBrakes(t, read(t, base, change), change)
	}
}

// of returns a copy of r in which each key is inserted for %s in the template change.
func (r rejections) of(change string) rejections {
	all := rejections{}
	for part, want := range r {
		all[fmt.Sprintf(change, part)] = want
	}
	return all
}

func TestSpec5_ASelectorThatSelectsIsNeeded(t *testing.T) {
	rejections{
		``:                                    ``,
		`selector: null`:                      `spec.selector: FieldValueRequired`,
		`selector: {matchLabels: null}`:       `spec.selector: FieldValueRequired`,
		`selector: {matchLabels: {"a b": c}}`: `spec.selector.matchLabels: FieldValueInvalid`,
		`selector: {matchExpressions: [{key: a, operator: Is}]}`:          `spec.selector.matchExpressions[0].operator: FieldValueInvalid`,
		`namespaceSelector: {matchExpressions: [{key: a, operator: In}]}`: `spec.namespaceSelector.matchExpressions[0].values: FieldValueRequired`,
		`namespaceSelector: {}`: ``,
		`namespace: a-b`:        ``,
		`namespace: A_B`:        `spec.namespace: FieldValueInvalid`,
	}.of("spec: {%s}").check(t)
}

func TestSpec5_AtLeastOneContainerOfEitherKind(t *testing.T) {
	rejections{
		`containers: []`: `spec.containers: FieldValueRequired`,
		`containers: [], initContainers: [{name: i, image: b}]`: ``,
	}.of("spec: {%s}").check(t)
}

// The API server checks the other fields of containers. See TestSpec5_KubernetesRejectsInvalidContainers.
func TestSpec5_NamesImagesAndMountsOfContainers(t *testing.T) {
	rejections{
		`{name: a, image: b}`:    ``,
		`{image: b}`:             `name: FieldValueRequired`,
		`{name: A, image: b}`:    `name: FieldValueInvalid`,
		`{name: a}`:              `image: FieldValueRequired`,
		`{name: a, image: "b "}`: `image: FieldValueInvalid`,
		`{name: i, image: b}`:    `name: FieldValueDuplicate`,
		`{name: h, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}`:                               `name: FieldValueDuplicate`,
		`{name: ` + strings.Repeat("a", 62) + `, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}`: `name: FieldValueInvalid, name: FieldValueInvalid`,
		`{name: a, image: b, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b}]}`:                                ``,
		`{name: a, image: b, volumeMounts: [{name: w, mountPath: /a}]}`:                                                          `volumeMounts[0].name: FieldValueNotFound`,
		`{name: a, image: b, volumeMounts: [{mountPath: /a}]}`:                                                                   `volumeMounts[0].name: FieldValueRequired`,
		`{name: a, image: b, volumeMounts: [{name: v}]}`:                                                                         `volumeMounts[0].mountPath: FieldValueRequired`,
		`{name: a, image: b, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]}`:                                `volumeMounts[1].mountPath: FieldValueInvalid`,
		`{name: a, image: b, volumeDevices: [{name: w, devicePath: /a}]}`:                                                        `volumeDevices[0].name: FieldValueNotFound`,
		`{name: a, image: b, volumeDevices: [{name: v}]}`:                                                                        `volumeDevices[0].devicePath: FieldValueRequired`,
		`{}`: `name: FieldValueRequired, image: FieldValueRequired`,
	}.ofContainer().check(t)
	rejections{
		`volumes: [{}, {name: A}, {name: v}, {name: v}]`: `spec.volumes[0].name: FieldValueRequired, spec.volumes[1].name: FieldValueInvalid, spec.volumes[3].name: FieldValueDuplicate`,
	}.of("spec: {%s}").check(t)
}

// ofContainer returns rejections in which each change is the only container of a SidecarSet with two init
// containers and a volume.
func (r rejections) ofContainer() rejections {
	all := rejections{}
	for container, want := range r.of("spec: {volumes: [{name: v}], initContainers: [{name: i, image: b}, {name: h-1, image: b}], containers: [%s]}") {
		var full []string
		for _, fieldError := range strings.Split(want, ", ") {
			if fieldError != "" {
				fieldError = "spec.containers[0]." + fieldError
			}
			full = append(full, fieldError)
		}
		all[container] = strings.Join(full, ", ")
	}
	return all
}

func TestSpec5_UnknownEnumValues(t *testing.T) {
	rejections{
		`imagePullPolicy: Maybe`:                                                            `imagePullPolicy: FieldValueNotSupported`,
		`podInjectPolicy: Sideways`:                                                         `podInjectPolicy: FieldValueNotSupported`,
		`shareVolumePolicy: {type: yes-please}`:                                             `shareVolumePolicy.type: FieldValueNotSupported`,
		`shareVolumeDevicePolicy: {type: yes-please}`:                                       `shareVolumeDevicePolicy.type: FieldValueNotSupported`,
		`shareVolumeDevicePolicy: {type: enabled}`:                                          ``,
		`upgradeStrategy: {upgradeType: Warm}`:                                              `upgradeStrategy.upgradeType: FieldValueNotSupported`,
		`resourcesPolicy: {targetContainersMode: avg, resourcesExpr: {limits: {cpu: cpu}}}`: `resourcesPolicy.targetContainersMode: FieldValueNotSupported`,
	}.of("{name: a, image: b, %s}").ofContainer().check(t)
	rejections{
		`updateStrategy: {type: Recreate}`:                                  `spec.updateStrategy.type: FieldValueNotSupported`,
		`updateStrategy: {type: rollingUpdate}`:                             `spec.updateStrategy.type: FieldValueNotSupported`,
		`injectionStrategy: {revision: {customVersion: a, policy: Never}}`:  `spec.injectionStrategy.revision.policy: FieldValueNotSupported`,
		`injectionStrategy: {revision: {revisionName: a, policy: Partial}}`: ``,
		`patchPodMetadata: [{annotations: {a: b}, patchPolicy: Maybe}]`:     `spec.patchPodMetadata[0].patchPolicy: FieldValueNotSupported`,
	}.of("spec: {%s}").check(t)
}

func TestSpec5_PartitionExcludesAnUpdateSelector(t *testing.T) {
	rejections{
		`selector: {matchLabels: {a: b}}`:                        ``,
		`selector: {matchLabels: {a: b}}, partition: 0`:          ``,
		`selector: {matchLabels: {a: b}}, partition: 0%`:         ``,
		`selector: {matchLabels: {a: b}}, partition: 2`:          `spec.updateStrategy.partition: FieldValueForbidden`,
		`selector: {matchLabels: {a: b}}, partition: 100%`:       `spec.updateStrategy.partition: FieldValueForbidden`,
		`selector: {matchExpressions: [{key: a, operator: Is}]}`: `spec.updateStrategy.selector.matchExpressions[0].operator: FieldValueInvalid`,
	}.of("spec: {updateStrategy: {%s}}").check(t)
}

func TestSpec5_NumbersFrom0AndPercentagesFrom0To100(t *testing.T) {
	for _, field := range []string{"partition", "maxUnavailable"} {
		rejected := "spec.updateStrategy." + field + ": FieldValueInvalid"
		rejections{
			`0`: ``, `5`: ``, `0%`: ``, `20%`: ``, `100%`: ``,
			`-1`: rejected, `-5%`: rejected, `101%`: rejected, `9999999999999999999%`: rejected,
			`"5"`: rejected, `""`: rejected, `"%"`: rejected, `5.5%`: rejected, `" 5%"`: rejected, `5%%`: rejected, `all`: rejected, `"+5%"`: rejected,
		}.of("spec: {updateStrategy: {" + field + ": %s}}").check(t)
	}
	rejections{`spec: {revisionHistoryLimit: -1}`: `spec.revisionHistoryLimit: FieldValueInvalid`, `spec: {revisionHistoryLimit: 0}`: ``}.check(t)
}

func TestSpec5_HotUpgradeNeedsAnEmptyImage(t *testing.T) {
	rejections{
		`{name: a, image: b, upgradeStrategy: {upgradeType: HotUpgrade}}`:                          `upgradeStrategy.hotUpgradeEmptyImage: FieldValueRequired`,
		`{name: a, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}`: ``,
		`{name: a, image: b, upgradeStrategy: {hotUpgradeEmptyImage: e}}`:                          ``,
	}.ofContainer().check(t)
	rejections{`spec: {initContainers: [{name: i, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]}`: `spec.initContainers[0].upgradeStrategy.upgradeType: FieldValueInvalid`}.check(t)
}

func TestSpec5_NativeSidecarsAreRolledButHaveNoTwins(t *testing.T) {
	rejections{
		`{name: i, image: b, restartPolicy: Always}`: ``,
		`{name: i, image: b}`:                        ``,
		`{name: i, image: b, restartPolicy: Always, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}`: `spec.initContainers[0].upgradeStrategy.upgradeType: FieldValueInvalid`,
	}.of("spec: {initContainers: [%s], updateStrategy: {type: RollingUpdate}}").check(t)
}

func TestSpec5_PriorityIsOfOneKindWithKeysAndWeights(t *testing.T) {
	rejections{
		`orderPriority: [{orderedKey: a}], weightPriority: [{weight: 1, matchSelector: {matchLabels: {a: b}}}]`: `spec.updateStrategy.priorityStrategy: FieldValueForbidden`,
		`orderPriority: [{orderedKey: a}, {orderedKey: ""}]`:                                                    `spec.updateStrategy.priorityStrategy.orderPriority[1].orderedKey: FieldValueRequired`,
		`weightPriority: [{weight: 101}, {weight: -1}, {weight: 0}, {weight: 100}]`:                             `spec.updateStrategy.priorityStrategy.weightPriority[0].weight: FieldValueInvalid, spec.updateStrategy.priorityStrategy.weightPriority[1].weight: FieldValueInvalid`,
		`weightPriority: [{weight: 1, matchSelector: {matchExpressions: [{key: a, operator: Is}]}}]`:            `spec.updateStrategy.priorityStrategy.weightPriority[0].matchSelector.matchExpressions[0].operator: FieldValueInvalid`,
	}.of("spec: {updateStrategy: {priorityStrategy: {%s}}}").check(t)
}

func TestSpec5_ScatterKeysAreGivenOnce(t *testing.T) {
	rejections{
		`{key: a, value: b}, {key: a, value: c}`: ``,
		`{key: a, value: b}, {key: a, value: b}`: `spec.updateStrategy.scatterStrategy[1]: FieldValueDuplicate`,
		`{value: b}`:                             `spec.updateStrategy.scatterStrategy[0].key: FieldValueRequired`,
	}.of("spec: {updateStrategy: {scatterStrategy: [%s]}}").check(t)
}

func TestSpec5_TransferEnvReadsDocumentedFields(t *testing.T) {
	rejections{
		`{sourceContainerName: x, envName: E}, {sourceContainerName: x, envNames: [E]}`: ``,
		`{envName: E}`:                              `transferEnv[0].sourceContainerName: FieldValueRequired`,
		`{sourceContainerName: x}`:                  `transferEnv[0].envName: FieldValueRequired`,
		`{envName: E, sourceContainerNameFrom: {}}`: `transferEnv[0].sourceContainerNameFrom.fieldRef: FieldValueRequired`,
	}.of("{name: a, image: b, transferEnv: [%s]}").ofContainer().check(t)
	const rejected = `transferEnv[0].sourceContainerNameFrom.fieldRef.fieldPath: FieldValueNotSupported`
	rejections{
		`metadata.name`: ``, `metadata.labels['k']`: ``, `metadata.annotations['a/b']`: ``,
		`spec.nodeName`: rejected, `metadata.labels`: rejected, `metadata.labels['']`: rejected, `metadata.namespace`: rejected, ``: rejected,
	}.of(`{name: a, image: b, transferEnv: [{envName: E, sourceContainerNameFrom: {fieldRef: {fieldPath: "%s"}}}]}`).ofContainer().check(t)
}

func TestSpec5_ResourcesPolicyIsAloneAndParses(t *testing.T) {
	const at = `resourcesPolicy.resourcesExpr.`
	rejections{
		`{targetContainersMode: sum, resourcesExpr: {limits: {cpu: cpu*2}, requests: {memory: 1Gi}}}`: ``,
		`{targetContainersMode: sum}`: `resourcesPolicy.resourcesExpr: FieldValueRequired`,
		`{targetContainersMode: sum, resourcesExpr: {limits: {}, requests: {cpu: "", memory: ""}}}`:                `resourcesPolicy.resourcesExpr: FieldValueRequired`,
		`{targetContainersMode: max, targetContainersNameRegex: "(", resourcesExpr: {requests: {memory: memory}}}`: `resourcesPolicy.targetContainersNameRegex: FieldValueInvalid`,
		`{targetContainersMode: max, resourcesExpr: {limits: {cpu: memory}, requests: {memory: cpu}}}`:             at + `limits.cpu: FieldValueInvalid, ` + at + `requests.memory: FieldValueInvalid`,
		`{targetContainersMode: max, resourcesExpr: {limits: {memory: "max(memory"}, requests: {cpu: "cpu cpu"}}}`: at + `limits.memory: FieldValueInvalid, ` + at + `requests.cpu: FieldValueInvalid`,
	}.of("{name: a, image: b, resourcesPolicy: %s}").ofContainer().check(t)
	rejections{
		`{limits: {cpu: 1}}`: `resources: FieldValueForbidden`, `{requests: {memory: 1}}`: `resources: FieldValueForbidden`,
		`{claims: [{name: c}]}`: `resources: FieldValueForbidden`, `{}`: ``,
	}.of("{name: a, image: b, resources: %s, resourcesPolicy: {targetContainersMode: max, resourcesExpr: {limits: {cpu: cpu}}}}").ofContainer().check(t)
}

func TestSpec5_APinHasANameOrAVersion(t *testing.T) {
	rejections{
		`{}`:                                  `spec.injectionStrategy.revision: FieldValueRequired`,
		`{revisionName: ""}`:                  `spec.injectionStrategy.revision: FieldValueRequired`,
		`{policy: Partial}`:                   `spec.injectionStrategy.revision: FieldValueRequired`,
		`{customVersion: a}`:                  ``,
		`{revisionName: a, customVersion: b}`: ``,
	}.of("spec: {injectionStrategy: {revision: %s}}").check(t)
}

func TestSpec5_MetadataKeysAreValidAndGivenOnce(t *testing.T) {
	rejections{
		`{annotations: {a: b}}, {annotations: {a: c}}`:          `spec.patchPodMetadata[1].annotations[a]: FieldValueDuplicate`,
		`{annotations: {Example.com/Key: c}}`:                   ``,
		`{annotations: {"a b": c}}`:                             `spec.patchPodMetadata[0].annotations[a b]: FieldValueInvalid`,
		`{annotations: {a: "{"}, patchPolicy: MergePatchJson}`:  `spec.patchPodMetadata[0].annotations[a]: FieldValueInvalid`,
		`{annotations: {a: "{}"}, patchPolicy: MergePatchJson}`: ``,
	}.of("spec: {patchPodMetadata: [%s]}").check(t)
}

func TestSpec5_NamesOfSets(t *testing.T) {
	rejections{
		`a.b`: `metadata.name: FieldValueInvalid`, `a_b`: `metadata.name: FieldValueInvalid`, `A-1`: ``,
		strings.Repeat("a", 64): `metadata.name: FieldValueInvalid`, strings.Repeat("a", 63): ``,
	}.of("metadata: {name: %s}").check(t)
}

func TestSpec5_AllErrorsAtOnce(t *testing.T) {
	rejections{
		`{metadata: {name: a.b}, spec: {selector: null, containers: [{name: A}, {image: b}], updateStrategy: {type: x, maxUnavailable: -1}}}`: `metadata.name: FieldValueInvalid, spec.selector: FieldValueRequired, spec.containers[0].name: FieldValueInvalid, spec.containers[0].image: FieldValueRequired, spec.containers[1].name: FieldValueRequired, spec.updateStrategy.type: FieldValueNotSupported, spec.updateStrategy.maxUnavailable: FieldValueInvalid`,
	}.check(t)
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
		assert.Equal(t, test.want, strings.Join(fieldErrors(ValidateMetadata(set(test.labels), whitelist)), ", "))
	}
	for _, broken := range []string{`[`, `{"rules":[{"allowedAnnotationKeyExprs":["("]}]}`, `{"rules":[{"selector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}]}`} {
		_, err := ParseWhitelist(broken)
		require.ErrorContains(t, err, v1alpha1.MetadataWhitelistKey)
	}
}

func TestSpec5_RunningPodsCannotGainContainersOrTwins(t *testing.T) {
	old := read(t, base, `spec: {containers: [{name: a, image: b}, {name: h, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]}`)
	defaults.Write(old)
	for containers, want := range map[string]string{
		`[{name: a, image: c}]`:                      ``,
		`[{name: b, image: b}]`:                      `spec.containers[0].name: FieldValueForbidden`,
		`[{name: a, image: b}, {name: b, image: b}]`: `spec.containers[1].name: FieldValueForbidden`,
		`[{name: h, image: b}]`:                      `spec.containers[0].upgradeStrategy.upgradeType: FieldValueForbidden`,
		`[{name: h, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: other}}]`: ``,
	} {
		set := read(t, base, "spec: {containers: "+containers+"}")
		defaults.Write(set)
		assert.Equal(t, want, strings.Join(fieldErrors(ValidateUpdate(set, old)), ", "), containers)
	}
}

func TestSpec5_RunningPodsCannotGainNativeSidecars(t *testing.T) {
	const native = "restartPolicy: Always"
	old := read(t, base, `spec: {initContainers: [{name: nat, image: b, `+native+`}, {name: i, image: b}]}`)
	defaults.Write(old)
	for containers, want := range map[string]string{
		`[{name: nat, image: c, ` + native + `}, {name: i, image: c}]`: ``,
		`[{name: i, image: b}, {name: nat, image: b, ` + native + `}]`: ``,
		`[]`:                                    ``,
		`[{name: nat, image: b}]`:               ``,
		`[{name: i, image: b, ` + native + `}]`: `spec.initContainers[0].name: FieldValueForbidden`,
		`[{name: m, image: b, ` + native + `}]`: `spec.initContainers[0].name: FieldValueForbidden`,
		`[{name: nat, image: b, ` + native + `}, {name: a, image: b, ` + native + `}]`: `spec.initContainers[1].name: FieldValueForbidden`,
		`[{name: nat, image: b, ` + native + `}, {name: j, image: b}]`:                 ``,
	} {
		set := read(t, base, "spec: {initContainers: "+containers+"}")
		defaults.Write(set)
		assert.Equal(t, want, strings.Join(fieldErrors(ValidateUpdate(set, old)), ", "), containers)
	}
}

func TestSpec5_PinnedRevisionsExist(t *testing.T) {
	revisions := `[{"metadata":{"name":"s-1","labels":{"kruise.io/sidecarset-name":"s","apps.kruise.io/sidecarset-custom-version":"v1"}}},
		{"metadata":{"name":"s-9","labels":{"kruise.io/sidecarset-name":"else","apps.kruise.io/sidecarset-custom-version":"v9"}}}]`
	var known []appsv1.ControllerRevision
	require.NoError(t, yaml.Unmarshal([]byte(revisions), &known))
	for pin, want := range map[string]string{
		`{revisionName: s-1}`:                    ``,
		`{revisionName: s-2}`:                    `spec.injectionStrategy.revision.revisionName: FieldValueNotFound`,
		`{revisionName: s-2, customVersion: v1}`: `spec.injectionStrategy.revision.revisionName: FieldValueNotFound`,
		`{customVersion: v1}`:                    ``,
		`{revisionName: "", customVersion: v1}`:  ``,
		`{revisionName: s-9}`:                    `spec.injectionStrategy.revision.revisionName: FieldValueNotFound`,
		`{customVersion: v9}`:                    `spec.injectionStrategy.revision.customVersion: FieldValueNotFound`,
		`{customVersion: mine}`:                  ``,
		`{customVersion: v2}`:                    `spec.injectionStrategy.revision.customVersion: FieldValueNotFound`,
	} {
		set := read(t, base, `metadata: {labels: {apps.kruise.io/sidecarset-custom-version: mine}}`, `spec: {injectionStrategy: {revision: `+pin+`}}`)
		assert.Equal(t, want, strings.Join(fieldErrors(ValidatePinned(set, known)), ", "), pin)
	}
	assert.Empty(t, ValidatePinned(read(t, base), nil))
}
