package validation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/revision"
)

// brakes are changes that are always accepted, even if the stored SidecarSet violates a rule.
var brakes = []string{
	`spec: {updateStrategy: {paused: true}}`,
	`spec: {injectionStrategy: {paused: true}}`,
	`spec: {updateStrategy: {maxUnavailable: 10%}}`,
	`metadata: {labels: {team: a}, annotations: {note: b}}`,
	`metadata: {labels: {apps.kruise.io/sidecarset-custom-version: two}}`,
}

// checkBrakes checks that a Ratchet accepts all brakes for a SidecarSet that violates a newer rule, and needs
// no other objects.
func checkBrakes(t *testing.T, stored *v1alpha1.SidecarSet, description string) {
	t.Helper()
	changes := brakes
	if stored.Spec.UpdateStrategy.Selector == nil {
		changes = append([]string{`spec: {updateStrategy: {partition: 1}}`}, brakes...)
	}
	for _, old := range []*v1alpha1.SidecarSet{stored, defaulted(stored)} {
		for _, change := range changes {
			edited := merged(t, old, change)
			require.NoError(t, revision.Complete(edited, old))
			ratchet := NewRatchet(edited, old)
			assert.Empty(t, ratchet.Rejected(), "%s, then %s", description, change)
			assert.False(t, ratchet.NeedsOthers() || ratchet.NeedsWhitelist() || ratchet.NeedsRevisions(), "%s, then %s", description, change)
		}
	}
}

func fields(causes []metav1.StatusCause) string {
	var all []string
	for _, cause := range causes {
		all = append(all, cause.Field)
	}
	return strings.Join(all, ", ")
}

func TestSpec5_UpdatesMayKeepButNotAddViolations(t *testing.T) {
	for _, test := range []struct{ rule, stored, change, want string }{
		{"missing selector", `spec: {selector: null}`, `spec: {selector: {}}`, "spec.selector"},
		{"unreadable selector", `spec: {selector: {matchExpressions: [{key: a, operator: Is}]}}`, `spec: {selector: {matchExpressions: [{key: a, operator: Was}]}}`, "spec.selector.matchExpressions[0].operator"},
		{"namespace", `spec: {namespace: A_B}`, `spec: {namespace: A_C}`, "spec.namespace"},
		{"name of a container", `spec: {containers: [{name: A, image: b}]}`, `spec: {containers: [{name: A, image: b}], initContainers: [{name: B, image: b}]}`, "spec.initContainers[0].name"},
		{"no image", `spec: {containers: [{name: a}, {name: b, image: b}]}`, `spec: {containers: [{name: a}, {name: b}]}`, "spec.containers[1].image"},
		{"moved elsewhere", `spec: {containers: [{name: a}, {name: b, image: b}]}`, `spec: {containers: [{name: a, image: a}, {name: b}]}`, "spec.containers[1].image"},
		{"the order of containers", `spec: {containers: [{name: a}, {name: b, image: b}]}`, `spec: {containers: [{name: b, image: c}, {name: a}]}`, ""},
		{"a container that is removed", `spec: {containers: [{name: b, image: b}, {name: a}]}`, `spec: {containers: [{name: a}]}`, ""},
		{"mount without volume", `spec: {containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /a}]}]}`, `spec: {containers: [{name: a, image: c, volumeMounts: [{name: v, mountPath: /b}, {name: w, mountPath: /c}]}]}`, "spec.containers[0].volumeMounts[1].name"},
		{"a volume that is removed", `spec: {volumes: [{name: v}], containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /a}]}]}`, `spec: {volumes: null}`, "spec.containers[0].volumeMounts[0].name"},
		{"duplicate volume", `spec: {volumes: [{name: v}, {name: v}]}`, `spec: {volumes: [{name: v}, {name: v}, {name: v}]}`, "spec.volumes[2].name"},
		{"enum", `spec: {containers: [{name: a, image: b, podInjectPolicy: Sideways}]}`, `spec: {containers: [{name: a, image: b, podInjectPolicy: Upwards}]}`, "spec.containers[0].podInjectPolicy"},
		{"unknown upgrade type, repaired", `spec: {containers: [{name: a, image: b, upgradeStrategy: {upgradeType: Warm}}]}`, `spec: {containers: [{name: a, image: b, upgradeStrategy: {upgradeType: ColdUpgrade}}]}`, ""},
		{"unknown upgrade type, made hot", `spec: {containers: [{name: a, image: b, upgradeStrategy: {upgradeType: Warm}}]}`, `spec: {containers: [{name: a, image: b, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}]}`, "spec.containers[0].upgradeStrategy.upgradeType"},
		{"partition with a selector", `spec: {updateStrategy: {partition: 2, selector: {matchLabels: {a: b}}}}`, `spec: {updateStrategy: {partition: 3}}`, "spec.updateStrategy.partition"},
		{"share", `spec: {updateStrategy: {maxUnavailable: "5"}}`, `spec: {updateStrategy: {maxUnavailable: "6"}}`, "spec.updateStrategy.maxUnavailable"},
		{"another share", `spec: {updateStrategy: {maxUnavailable: "5"}}`, `spec: {updateStrategy: {partition: -1}}`, "spec.updateStrategy.partition"},
		{"no empty image", `spec: {containers: [{name: a, image: b, upgradeStrategy: {upgradeType: HotUpgrade}}]}`, `spec: {containers: [{name: a, image: " c", upgradeStrategy: {upgradeType: HotUpgrade}}]}`, "spec.containers[0].image"},
		{"another native sidecar", `spec: {initContainers: [{name: i, image: b, restartPolicy: Always}]}`, `spec: {initContainers: [{name: i, image: b, restartPolicy: Always}, {name: j, image: b, restartPolicy: Always}]}`, "spec.initContainers[1].name"},
		{"both priorities", `spec: {updateStrategy: {priorityStrategy: {orderPriority: [{orderedKey: a}], weightPriority: [{weight: 1, matchSelector: {}}]}}}`, `spec: {updateStrategy: {priorityStrategy: {orderPriority: [{orderedKey: b}]}}}`, "spec.updateStrategy.priorityStrategy"},
		{"weight", `spec: {updateStrategy: {priorityStrategy: {weightPriority: [{weight: 101, matchSelector: {}}]}}}`, `spec: {updateStrategy: {priorityStrategy: {weightPriority: [{weight: 102, matchSelector: {}}]}}}`, "spec.updateStrategy.priorityStrategy.weightPriority[0].weight"},
		{"scatter", `spec: {updateStrategy: {scatterStrategy: [{value: a}]}}`, `spec: {updateStrategy: {scatterStrategy: [{value: a}, {value: b}]}}`, "spec.updateStrategy.scatterStrategy[1].key"},
		{"transferEnv", `spec: {containers: [{name: a, image: b, transferEnv: [{envName: E}]}]}`, `spec: {containers: [{name: a, image: b, transferEnv: [{envName: E}, {envName: F}]}]}`, "spec.containers[0].transferEnv[1].sourceContainerName"},
		{"resourcesPolicy with resources", `spec: {containers: [{name: a, image: b, resources: {limits: {cpu: 1}}, resourcesPolicy: {targetContainersMode: sum, resourcesExpr: {limits: {cpu: cpu}}}}]}`, `spec: {containers: [{name: a, image: b, resources: {limits: {cpu: 2}}, resourcesPolicy: {targetContainersMode: sum, resourcesExpr: {limits: {cpu: cpu}}}}]}`, "spec.containers[0].resources"},
		{"resourcesPolicy without expression, kept", `spec: {containers: [{name: a, image: b, resourcesPolicy: {targetContainersMode: sum}}]}`, `spec: {containers: [{name: a, image: c, resourcesPolicy: {targetContainersMode: sum}}]}`, ""},
		{"resourcesPolicy without expression, new", `spec: {containers: [{name: a, image: b}]}`, `spec: {containers: [{name: a, image: b, resourcesPolicy: {targetContainersMode: sum}}]}`, "spec.containers[0].resourcesPolicy.resourcesExpr"},
		{"pin of nothing", `spec: {injectionStrategy: {revision: {policy: Always}}}`, `spec: {injectionStrategy: {revision: {policy: Partial}}}`, "spec.injectionStrategy.revision"},
		{"metadata", `spec: {patchPodMetadata: [{annotations: {"a b": c}}]}`, `spec: {patchPodMetadata: [{annotations: {"a b": d}}]}`, "spec.patchPodMetadata[0].annotations[a b]"},
		{"metadata of any characters", `spec: {patchPodMetadata: [{annotations: {"a].b/c[": c}}]}`, `spec: {patchPodMetadata: [{annotations: {"a].b/c[": d, ok: x}}]}`, "spec.patchPodMetadata[0].annotations[a].b/c[], spec.patchPodMetadata[0].annotations[a].b/c[]"},
		{"name of the set", `metadata: {name: a.b}`, `spec: {updateStrategy: {type: Never}}`, "spec.updateStrategy.type"},
		{"history limit", `spec: {revisionHistoryLimit: -1}`, `spec: {revisionHistoryLimit: -2}`, "spec.revisionHistoryLimit"},
	} {
		old := read(t, base, test.stored)
		edited := merged(t, old, test.change)
		require.NoError(t, revision.Complete(edited, old))
		assert.Equal(t, test.want, fields(NewRatchet(edited, old).Rejected()), test.rule)
		checkBrakes(t, old, test.rule)
	}
}

func TestSpec5_OnlyChangedFieldsConflict(t *testing.T) {
	other := *read(t, base, `{metadata: {name: other}, spec: {containers: [{name: side, image: x}], volumes: [{name: v}],
		patchPodMetadata: [{annotations: {k: x}, patchPolicy: Overwrite}]}}`)
	defaults.Write(&other)
	const stored = `spec: {volumes: [{name: v, hostPath: {path: /x}}], patchPodMetadata: [{annotations: {k: y}, patchPolicy: Overwrite}]}`
	for change, want := range map[string]string{
		`spec: {containers: [{name: side, image: new}]}`:                                               "",
		`spec: {initContainers: [{name: init, image: x}]}`:                                             "",
		`spec: {volumes: [{name: w}, {name: v, hostPath: {path: /x}}]}`:                                "",
		`spec: {volumes: [{name: v, hostPath: {path: /y}}]}`:                                           "spec.volumes[0]",
		`spec: {patchPodMetadata: [{annotations: {k: z}, patchPolicy: Overwrite}]}`:                    "spec.patchPodMetadata[0].annotations[k]",
		`spec: {patchPodMetadata: [{annotations: {k: y, l: m}, patchPolicy: Overwrite}]}`:              "",
		`spec: {selector: {matchLabels: {app: null}, matchExpressions: [{key: a, operator: Exists}]}}`: "spec.containers[0].name, spec.volumes[0], spec.patchPodMetadata[0].annotations[k]",
		`spec: {selector: {matchLabels: {app: db}}}`:                                                   "",
	} {
		old := read(t, base, stored)
		edited := merged(t, old, change)
		require.NoError(t, revision.Complete(edited, old))
		ratchet := NewRatchet(edited, old)
		require.True(t, ratchet.NeedsOthers(), change)
		ratchet.Conflicts([]v1alpha1.SidecarSet{*old, other}, nil)
		assert.Equal(t, want, fields(ratchet.Rejected()), change)
	}
	ratchet := NewRatchet(read(t, base), nil)
	ratchet.Conflicts([]v1alpha1.SidecarSet{other}, nil)
	assert.Equal(t, "spec.containers[0].name", fields(ratchet.Rejected()), "a new set")
}

func TestSpec5_AKeyThatLeftTheWhitelistStays(t *testing.T) {
	old := read(t, base, `spec: {patchPodMetadata: [{annotations: {gone: a}}]}`)
	none, err := ParseWhitelist(`{"rules":[{"allowedAnnotationKeyExprs":["^free$"]}]}`)
	require.NoError(t, err)
	for change, want := range map[string]string{
		`spec: {patchPodMetadata: [{annotations: {gone: a, free: b}}]}`:                  "",
		`spec: {patchPodMetadata: [{annotations: {free: b}}, {annotations: {gone: a}}]}`: "",
		`spec: {patchPodMetadata: [{annotations: {gone: b}}]}`:                           "spec.patchPodMetadata[0].annotations[gone]",
		`spec: {patchPodMetadata: [{annotations: {gone: a, more: b}}]}`:                  "spec.patchPodMetadata[0].annotations[more]",
	} {
		ratchet := NewRatchet(merged(t, old, change), old)
		require.True(t, ratchet.NeedsWhitelist(), change)
		ratchet.Metadata(none)
		assert.Equal(t, want, fields(ratchet.Rejected()), change)
	}
	checkBrakes(t, old, "a key that left the whitelist")
}

func TestSpec5_APinThatWasLostStays(t *testing.T) {
	old := read(t, base, `spec: {injectionStrategy: {revision: {revisionName: lost}}}`)
	checkBrakes(t, old, "a pin that was lost")
	ratchet := NewRatchet(merged(t, old, `spec: {injectionStrategy: {revision: {revisionName: gone}}}`), old)
	require.True(t, ratchet.NeedsRevisions())
	ratchet.Pinned(nil)
	assert.Equal(t, "spec.injectionStrategy.revision.revisionName", fields(ratchet.Rejected()))
	assert.False(t, NewRatchet(merged(t, old, `spec: {injectionStrategy: {revision: null}}`), old).NeedsRevisions())
	ratchet = NewRatchet(merged(t, old, `spec: {injectionStrategy: {revision: {policy: Partial}}}`), old)
	require.True(t, ratchet.NeedsRevisions())
	ratchet.Pinned(nil)
	assert.Empty(t, ratchet.Rejected(), "another policy for the lost revision")
}

func TestSpec5_StoredErrorsOfKubernetesAreNotReported(t *testing.T) {
	cause := func(field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}
	}
	old := read(t, base, `spec: {containers: [{name: a, image: a, ports: [{containerPort: 70000}]}, {name: b, image: b}]}`)
	edited := merged(t, old, `spec: {containers: [{name: b, image: c}, {name: a, image: a, ports: [{containerPort: 70000}]}]}`)
	got := NewRatchet(edited, old).Introduced(
		[]metav1.StatusCause{cause("spec.containers[1].ports[0].containerPort", "70000"), cause("spec.containers[0].image", "c"), cause("spec", "in a pod: x")},
		[]metav1.StatusCause{cause("spec.containers[0].ports[0].containerPort", "70000"), cause("spec", "in a pod: x")})
	assert.Equal(t, []metav1.StatusCause{cause("spec.containers[0].image", "c")}, got)
}

func TestSpec5_AnUntouchedVersionKeepsItsHashUnderNewDefaults(t *testing.T) {
	stored := defaulted(read(t, base, `spec: {containers: [{name: side, image: busybox}], volumes: [{name: v}]}`))
	// The stored SidecarSet lacks a default that Outrigger writes.
	stored.Spec.Containers[0].PodInjectPolicy = ""
	require.NoError(t, revision.WriteHashes(stored))
	for _, change := range brakes {
		edited := merged(t, stored, change)
		require.NoError(t, revision.Complete(edited, stored))
		assert.Equal(t, stored.Spec.Containers, edited.Spec.Containers, change)
		assert.Equal(t, stored.Annotations[v1alpha1.HashAnnotation], edited.Annotations[v1alpha1.HashAnnotation], change)
		assert.Empty(t, NewRatchet(edited, stored).Rejected(), change)
	}
	edited := merged(t, stored, `spec: {containers: [{name: side, image: new}]}`)
	require.NoError(t, revision.Complete(edited, stored))
	assert.Equal(t, v1alpha1.BeforeAppContainerType, edited.Spec.Containers[0].PodInjectPolicy, "another version is completed")

	delete(stored.Annotations, v1alpha1.HashAnnotation)
	edited = merged(t, stored, brakes[0])
	require.NoError(t, revision.Complete(edited, stored))
	assert.Equal(t, v1alpha1.BeforeAppContainerType, edited.Spec.Containers[0].PodInjectPolicy, "nor was this one hashed")
}
