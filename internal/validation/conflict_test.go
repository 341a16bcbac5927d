package validation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/defaults"
	"github.com/outrigger/outrigger/internal/revision"
)

func TestSpec5_ConflictsBetweenSets(t *testing.T) {
	const other = `
metadata: {name: other}
spec:
  containers:
  - {name: side, image: x}
  - {name: hot, image: x, upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: e}}
  initContainers: [{name: init, image: x}]
  volumes: [{name: v, emptyDir: {}}, {name: w, hostPath: {path: /x}}]
  patchPodMetadata:
  - {annotations: {o: x}, patchPolicy: Overwrite}
  - {annotations: {m: '{}'}, patchPolicy: MergePatchJson}
  - {annotations: {r: x}, patchPolicy: Retain}
`
	for text, want := range map[string]string{
		`containers: [{name: new, image: x}]`:                                                      ``,
		`containers: [{name: new, image: x}, {name: side, image: x}]`:                              `spec.containers[1].name: FieldValueInvalid`,
		`containers: [{name: hot-2, image: x}]`:                                                    `spec.containers[0].name: FieldValueInvalid`,
		`containers: [{name: hot, image: x}]`:                                                      `spec.containers[0].name: FieldValueInvalid`,
		`containers: [{name: init, image: x}]`:                                                     `spec.containers[0].name: FieldValueInvalid`,
		`initContainers: [{name: init, image: x}]`:                                                 `spec.initContainers[0].name: FieldValueInvalid`,
		`initContainers: [{name: side, image: x}]`:                                                 `spec.initContainers[0].name: FieldValueInvalid`,
		`initContainers: [{name: hot-1, image: x}]`:                                                `spec.initContainers[0].name: FieldValueInvalid`,
		`volumes: [{name: v}]`:                                                                     ``,
		`volumes: [{name: v, emptyDir: {medium: Memory}}]`:                                         `spec.volumes[0]: FieldValueInvalid`,
		`volumes: [{name: w, hostPath: {path: /x}}]`:                                               ``,
		`patchPodMetadata: [{annotations: {o: x, m: x, r: x}, patchPolicy: Retain}]`:               `spec.patchPodMetadata[0].annotations[m]: FieldValueInvalid`,
		`patchPodMetadata: [{annotations: {o: x, m: '{"a":1}', r: x}, patchPolicy: Retain}]`:       ``,
		`patchPodMetadata: [{annotations: {m: '1'}, patchPolicy: Retain}]`:                         ``,
		`patchPodMetadata: [{annotations: {o: x, m: x, r: x}, patchPolicy: Overwrite}]`:            `spec.patchPodMetadata[0].annotations[m]: FieldValueInvalid, spec.patchPodMetadata[0].annotations[o]: FieldValueInvalid`,
		`patchPodMetadata: [{annotations: {o: '1', m: '1', r: '1'}, patchPolicy: MergePatchJson}]`: `spec.patchPodMetadata[0].annotations[o]: FieldValueInvalid, spec.patchPodMetadata[0].annotations[r]: FieldValueInvalid`,
		`selector: {matchLabels: {app: else}}, containers: [{name: side, image: x}]`:               ``,
	} {
		set := read(t, `metadata: {name: s}`, `spec: {selector: {matchLabels: {app: web}}}`, "spec: {"+text+"}")
		theirs := read(t, `spec: {selector: {matchLabels: {app: web}}}`, other)
		if strings.Contains(text, "selector") {
			set.Spec.Selector.MatchLabels = map[string]string{"app": "else"}
		}
		defaults.Write(set)
		// Stored SidecarSets may be older than a default.
		errs := ValidateConflicts(set, []v1alpha1.SidecarSet{*set, *theirs}, nil)
		assert.Equal(t, want, strings.Join(fieldErrors(errs), ", "), text)
		for _, err := range errs {
			assert.Contains(t, err.Detail, "SidecarSet other")
		}
	}
}

// A SidecarSet that was stored with the conflict accepts changes of other annotations.
func TestSpec5_StoredConflictsOfAnnotations(t *testing.T) {
	merging := read(t, base, `{metadata: {name: merging}, spec: {containers: [{name: merging, image: x}], patchPodMetadata: [{annotations: {note: '{}'}, patchPolicy: MergePatchJson}]}}`)
	old := read(t, base, `spec: {patchPodMetadata: [{annotations: {note: plain}, patchPolicy: Retain}]}`)
	for _, change := range []string{`{note: plain, other: x}`, `{note: '{}'}`} {
		set := read(t, base, `spec: {patchPodMetadata: [{annotations: `+change+`, patchPolicy: Retain}]}`)
		ratchet := NewRatchet(set, old)
		require.True(t, ratchet.NeedsOthers())
		ratchet.Conflicts([]v1alpha1.SidecarSet{*merging}, nil)
		assert.Empty(t, ratchet.Rejected(), change)
	}
	ratchet := NewRatchet(old, read(t, base))
	ratchet.Conflicts([]v1alpha1.SidecarSet{*merging}, nil)
	assert.Equal(t, "spec.patchPodMetadata[0].annotations[note]", fields(ratchet.Rejected()))
}

// pinTo pins the injection of a SidecarSet to an older revision, and returns its revisions.
func pinTo(t *testing.T, set *v1alpha1.SidecarSet, older string) []appsv1.ControllerRevision {
	t.Helper()
	recorded, err := revision.New(merged(t, set, older), "system", 1)
	require.NoError(t, err)
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: &recorded.Name}
	return []appsv1.ControllerRevision{*recorded}
}

func TestSpec5_PinnedRevisionsConflictToo(t *testing.T) {
	const older = `spec: {containers: [{name: agent, image: x}, {name: gone, image: x}], volumes: [{name: v, hostPath: {path: /old}}]}`
	other := read(t, base, `{metadata: {name: other}, spec: {containers: [{name: agent, image: x}], volumes: [{name: v, hostPath: {path: /new}}]}}`)
	theirs := pinTo(t, other, older)
	for change, want := range map[string]string{
		`spec: {containers: [{name: gone, image: x}]}`:                                              "spec.containers[0].name",
		`spec: {initContainers: [{name: gone, image: x}], containers: [{name: new, image: x}]}`:     "spec.initContainers[0].name",
		`spec: {containers: [{name: new, image: x}], volumes: [{name: v, hostPath: {path: /new}}]}`: "spec.volumes[0]",
		`spec: {containers: [{name: new, image: x}], volumes: [{name: v, hostPath: {path: /old}}]}`: "spec.volumes[0]",
		`spec: {containers: [{name: agent, image: x}]}`:                                             "spec.containers[0].name",
		`spec: {containers: [{name: new, image: x}], volumes: [{name: w}]}`:                         "",
		`spec: {containers: [{name: gone, image: x}], selector: {matchLabels: {app: db}}}`:          "",
	} {
		ratchet := NewRatchet(read(t, base, change), nil)
		ratchet.Conflicts([]v1alpha1.SidecarSet{*other}, theirs)
		assert.Equal(t, want, fields(ratchet.Rejected()), change)
	}

	// The same conflict also causes the rejection of the pinned SidecarSet.
	plain := read(t, base, `{metadata: {name: plain}, spec: {containers: [{name: gone, image: x}]}}`)
	old := read(t, base, `{metadata: {name: other}, spec: {containers: [{name: agent, image: x}]}}`)
	edited := old.DeepCopy()
	ours := pinTo(t, edited, older)
	ratchet := NewRatchet(edited, old)
	require.True(t, ratchet.NeedsOthers())
	require.Equal(t, []string{"other"}, ratchet.PinnedAmong([]v1alpha1.SidecarSet{*plain, *old}))
	ratchet.Conflicts([]v1alpha1.SidecarSet{*plain, *old}, ours)
	require.Equal(t, "spec.injectionStrategy.revision", fields(ratchet.Rejected()))
	assert.Contains(t, ratchet.Rejected()[0].Message, "container gone of that revision: SidecarSet plain injects a container of this name")

	// A user repairs the current content of a pinned SidecarSet.
	both := read(t, base, `{metadata: {name: other}, spec: {containers: [{name: gone, image: x}, {name: new, image: x}]}}`)
	ours = pinTo(t, both, older)
	repaired := both.DeepCopy()
	repaired.Spec.Containers = repaired.Spec.Containers[1:]
	ratchet = NewRatchet(repaired, both)
	ratchet.Conflicts([]v1alpha1.SidecarSet{*plain}, ours)
	assert.Empty(t, ratchet.Rejected())

	// An existing conflict does not cause the rejection of a pin to an older revision.
	stuck := read(t, base, `{metadata: {name: plain}, spec: {containers: [{name: agent, image: x}]}}`)
	ratchet = NewRatchet(edited, old)
	ratchet.Conflicts([]v1alpha1.SidecarSet{*stuck}, ours)
	assert.Empty(t, ratchet.Rejected())
	assert.False(t, NewRatchet(old, edited).NeedsOthers(), "nor from leaving it")
}

func TestSpec5_SetsOverlapWhenOnePodCanMatchBoth(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{`selector: {matchLabels: {app: web}}`, `selector: {matchLabels: {app: web}}`, true},
		{`selector: {matchLabels: {app: web}}`, `selector: {matchLabels: {app: db}}`, false},
		{`selector: {matchLabels: {app: web}}`, `selector: {matchLabels: {tier: a}}`, true},
		{`selector: {matchLabels: {app: web, tier: a}}`, `selector: {matchLabels: {app: web, tier: b}}`, false},
		{`selector: {matchLabels: {app: web}}`, `selector: {}`, false},
		{`selector: {matchLabels: {app: web}}`, `namespace: x`, false},
		{`selector: {matchLabels: {app: web}}`, `selector: {matchExpressions: [{key: app, operator: In, values: [db, web]}]}`, true},
		{`selector: {matchLabels: {app: web}}`, `selector: {matchExpressions: [{key: app, operator: NotIn, values: [db, web]}]}`, false},
		{`selector: {matchLabels: {app: web}}`, `selector: {matchExpressions: [{key: app, operator: Exists}]}`, true},
		{`selector: {matchLabels: {app: web}}`, `selector: {matchExpressions: [{key: app, operator: DoesNotExist}]}`, false},
		{`selector: {matchExpressions: [{key: app, operator: Exists}]}`, `selector: {matchExpressions: [{key: app, operator: DoesNotExist}]}`, false},
		{`selector: {matchExpressions: [{key: app, operator: NotIn, values: [a]}]}`, `selector: {matchExpressions: [{key: app, operator: DoesNotExist}]}`, true},
		{`selector: {matchExpressions: [{key: app, operator: In, values: [a, b]}]}`, `selector: {matchExpressions: [{key: app, operator: In, values: [b, c]}, {key: app, operator: NotIn, values: [b]}]}`, false},
		{`selector: {matchExpressions: [{key: app, operator: Exists}]}`, `selector: {matchExpressions: [{key: app, operator: NotIn, values: [b]}]}`, true},
		{`namespace: x, selector: {matchLabels: {app: web}}`, `namespace: y, selector: {matchLabels: {app: web}}`, false},
		{`namespace: x, selector: {matchLabels: {app: web}}`, `namespace: x, selector: {matchLabels: {app: web}}`, true},
		{`namespace: x, selector: {matchLabels: {app: web}}`, `selector: {matchLabels: {app: web}}`, true},
		{`namespace: x, selector: {matchLabels: {app: web}}`, `namespaceSelector: {matchLabels: {env: prod}}, selector: {matchLabels: {app: web}}`, true},
		{`namespace: x, selector: {matchLabels: {app: web}}`, `namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: y}}, selector: {matchLabels: {app: web}}`, false},
		{`namespaceSelector: {matchLabels: {env: dev}}, selector: {matchLabels: {app: web}}`, `namespaceSelector: {matchLabels: {env: prod}}, selector: {matchLabels: {app: web}}`, false},
		{`namespace: x, selector: {matchLabels: {app: web}}`, `namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: NotIn, values: [x]}]}, selector: {matchLabels: {app: web}}`, false},
		{`namespace: x, namespaceSelector: {matchLabels: {env: dev}}, selector: {matchLabels: {app: web}}`, `namespace: x, namespaceSelector: {matchLabels: {env: prod}}, selector: {matchLabels: {app: web}}`, false},
		{`selector: {matchExpressions: [{key: app, operator: NotIn, values: [a]}]}`, `selector: {matchExpressions: [{key: app, operator: NotIn, values: [b]}]}`, true},
		{`namespaceSelector: {}, selector: {matchLabels: {app: web}}`, `namespaceSelector: {matchLabels: {env: prod}}, selector: {matchLabels: {app: web}}`, true},
	} {
		a, b := read(t, "spec: {"+test.a+"}"), read(t, "spec: {"+test.b+"}")
		assert.Equal(t, test.want, Overlap(&a.Spec, &b.Spec), "%s with %s", test.a, test.b)
		assert.Equal(t, test.want, Overlap(&b.Spec, &a.Spec), "%s with %s", test.b, test.a)
	}
}
