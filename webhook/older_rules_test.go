package webhook_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/revision"
)

// olderRules maps the name of a rule to a spec and a change. The spec violates the rule, because the spec was
// stored before the rule existed. The change violates the rule again.
var olderRules = map[string]struct{ spec, worse string }{
	"selector":    {`{selector: {matchLabels: {app: selector}, matchExpressions: [{key: a, operator: Is}]}, containers: [{name: a, image: b}]}`, `{selector: {matchExpressions: [{key: a, operator: Was}]}}`},
	"namespace":   {`{selector: {matchLabels: {app: namespace}}, namespace: A_B, containers: [{name: a, image: b}]}`, `{namespace: A_C}`},
	"nothing":     {`{selector: {matchLabels: {app: nothing}}}`, `{namespace: A_C}`},
	"image":       {`{selector: {matchLabels: {app: image}}, containers: [{name: a}]}`, `{containers: [{name: a, image: " b"}]}`},
	"mount":       {`{selector: {matchLabels: {app: mount}}, containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /v}]}]}`, `{containers: [{name: a, image: b, volumeMounts: [{name: w, mountPath: /v}]}]}`},
	"enum":        {`{selector: {matchLabels: {app: enum}}, containers: [{name: a, image: b, podInjectPolicy: Sideways}]}`, `{containers: [{name: a, image: b, podInjectPolicy: Upwards}]}`},
	"limit":       {`{selector: {matchLabels: {app: limit}}, containers: [{name: a, image: b}], updateStrategy: {maxUnavailable: "5"}}`, `{updateStrategy: {maxUnavailable: "6"}}`},
	"canary":      {`{selector: {matchLabels: {app: canary}}, containers: [{name: a, image: b}], updateStrategy: {partition: 1, selector: {matchLabels: {a: b}}}}`, `{updateStrategy: {partition: 2}}`},
	"hot":         {`{selector: {matchLabels: {app: hot}}, containers: [{name: a, image: b, upgradeStrategy: {upgradeType: HotUpgrade}}]}`, `{containers: [{name: a, image: b, upgradeStrategy: {upgradeType: ColdUpgrade}}]}`},
	"native":      {`{selector: {matchLabels: {app: native}}, initContainers: [{name: a, image: b, restartPolicy: Always}]}`, `{initContainers: [{name: a, image: b, restartPolicy: Always}, {name: c, image: b, restartPolicy: Always}]}`},
	"weight":      {`{selector: {matchLabels: {app: weight}}, containers: [{name: a, image: b}], updateStrategy: {priorityStrategy: {weightPriority: [{weight: 101, matchSelector: {}}]}}}`, `{updateStrategy: {priorityStrategy: {weightPriority: [{weight: 102, matchSelector: {}}]}}}`},
	"scatter":     {`{selector: {matchLabels: {app: scatter}}, containers: [{name: a, image: b}], updateStrategy: {scatterStrategy: [{key: "", value: b}]}}`, `{updateStrategy: {scatterStrategy: [{key: "", value: b}, {key: "", value: c}]}}`},
	"resources":   {`{selector: {matchLabels: {app: resources}}, containers: [{name: a, image: b, resourcesPolicy: {targetContainersMode: sum, resourcesExpr: {}}}]}`, `{containers: [{name: a, image: b, resourcesPolicy: {targetContainersMode: avg, resourcesExpr: {}}}]}`},
	"pin":         {`{selector: {matchLabels: {app: pin}}, containers: [{name: a, image: b}], injectionStrategy: {revision: {customVersion: lost}}}`, `{injectionStrategy: {revision: {customVersion: gone}}}`},
	"metadata":    {`{selector: {matchLabels: {app: metadata}}, containers: [{name: a, image: b}], patchPodMetadata: [{annotations: {unlisted: x}}]}`, `{patchPodMetadata: [{annotations: {unlisted: y}}]}`},
	"port":        {`{selector: {matchLabels: {app: port}}, containers: [{name: a, image: b, ports: [{containerPort: 70000}]}]}`, `{containers: [{name: a, image: b, ports: [{containerPort: 80000}]}]}`},
	"probe":       {`{selector: {matchLabels: {app: probe}}, containers: [{name: a, image: b, startupProbe: {httpGet: {port: 80}, periodSeconds: -1}}]}`, `{containers: [{name: a, image: b, startupProbe: {httpGet: {port: 80}, periodSeconds: -2}}]}`},
	"conflict":    {`{selector: {matchLabels: {app: port}}, containers: [{name: a, image: b}], volumes: [{name: v}]}`, `{selector: {matchLabels: {app: probe}}}`},
	"mode":        {`{selector: {matchLabels: {app: mode}}, containers: [{name: a, image: b, resourcesPolicy: {targetContainersMode: avg, resourcesExpr: {limits: {cpu: cpu}}}}]}`, `{containers: [{name: a, image: b, resourcesPolicy: {targetContainersMode: least}}]}`},
	"policy":      {`{selector: {matchLabels: {app: policy}}, containers: [{name: a, image: b}], patchPodMetadata: [{annotations: {x: "1"}, patchPolicy: Lose}]}`, `{patchPodMetadata: [{annotations: {x: "1"}, patchPolicy: Win}]}`},
	"type":        {`{selector: {matchLabels: {app: type}}, containers: [{name: a, image: b}], updateStrategy: {type: Sometimes}}`, `{updateStrategy: {type: Never}}`},
	"shares":      {`{selector: {matchLabels: {app: shares}}, containers: [{name: a, image: b, shareVolumePolicy: {type: perhaps}, upgradeStrategy: {upgradeType: Lukewarm}}]}`, `{containers: [{name: a, image: b, shareVolumePolicy: {type: never}, upgradeStrategy: {upgradeType: Lukewarm}}]}`},
	"repeated":    {`{selector: {matchLabels: {app: repeated}}, containers: [{name: a, image: b, env: [{name: X, value: "1"}, {name: X, value: "2"}]}, {name: a, image: c}], volumes: [{name: v}, {name: v}], imagePullSecrets: [{name: s}, {name: s}]}`, `{containers: [{name: a, image: b}, {name: a, image: c}, {name: a, image: d}]}`},
	"nameless":    {`{selector: {matchLabels: {app: nameless}}, containers: [{image: b, env: [{value: "1"}], volumeMounts: [{name: v}]}], volumes: [{emptyDir: {}}]}`, `{containers: [{image: b}, {image: c}]}`},
	"nulls":       {`{selector: {matchLabels: {app: nulls}}, containers: [{name: a, image: b, env: null, resources: null, ports: null, securityContext: null}], initContainers: null, volumes: null}`, `{containers: [{name: a, image: b, env: [{name: ""}]}]}`},
	"fractions":   {`{selector: {matchLabels: {app: fractions}}, containers: [{name: a, image: b, resources: {limits: {cpu: 0.5}}}]}`, `{containers: [{name: a, image: b, resources: {limits: {cpu: -0.5}}}]}`},
	"dotted.name": {`{selector: {matchLabels: {app: dotted}}, containers: [{name: a, image: b}]}`, `{revisionHistoryLimit: -1}`},
}

// olderDefinition returns a kustomize directory with an older definition, whose schema does not describe
// containers, volumes and policies.
func olderDefinition(t *testing.T) string {
	text, err := os.ReadFile("../config/crd/bases/apps.kruise.io_sidecarsets.yaml")
	require.NoError(t, err)
	var definition apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.Unmarshal(text, &definition))
	for _, version := range definition.Spec.Versions {
		spec := version.Schema.OpenAPIV3Schema.Properties["spec"].Properties
		for _, field := range []string{"containers", "initContainers", "volumes", "imagePullSecrets", "patchPodMetadata", "updateStrategy", "injectionStrategy"} {
			require.Contains(t, spec, field)
			spec[field] = apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
		}
	}
	text, err = yaml.Marshal(definition)
	require.NoError(t, err)
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "definition.yaml"), text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte("resources: [definition.yaml]"), 0o600))
	return folder
}

// storeOlderSets stores SidecarSets, and then applies the new definition. The webhook is not installed yet.
func (s *environment) storeOlderSets(t *testing.T) {
	for name, rule := range olderRules {
		require.NoError(t, s.admin.Create(s.ctx, older(t, name, rule.spec)), name)
	}
	before := s.storedSpecs(t)
	require.NoError(t, s.cluster.Apply(s.ctx, "../config/crd"))
	require.Eventually(t, func() bool {
		err := s.admin.Create(s.ctx, older(t, "newer", olderRules["enum"].spec), client.DryRunAll)
		return apierrors.IsInvalid(err)
	}, time.Minute, 20*time.Millisecond, "the newer schema is in force")
	require.Equal(t, before, s.storedSpecs(t), "a schema changes nothing that is stored")
}

// storedSpecs returns the stored specs by the name of the SidecarSet. The specs are decoded, so null is equal
// to a missing value.
func (s *environment) storedSpecs(t *testing.T) map[string]v1alpha1.SidecarSetSpec {
	var sets v1alpha1.SidecarSetList
	require.NoError(t, s.admin.List(s.ctx, &sets))
	require.Len(t, sets.Items, len(olderRules))
	specs := map[string]v1alpha1.SidecarSetSpec{}
	for i := range sets.Items {
		specs[sets.Items[i].Name] = sets.Items[i].Spec
	}
	return specs
}

// outdatedHashes applies an empty patch to each SidecarSet that was stored without a webhook, as condition
// Degraded recommends.
func (s *environment) outdatedHashes(t *testing.T) {
	for name := range olderRules {
		set := &v1alpha1.SidecarSet{}
		key := client.ObjectKey{Name: name}
		require.NoError(t, s.admin.Get(s.ctx, key, set))
		completed, err := revision.Completed(set)
		require.NoError(t, err)
		require.False(t, revision.HaveOwnHashes(set, completed), name)
		out, err := s.kubectl("", "patch", "sidecarset", name, "--type=merge", "-p", "{}")
		require.NoError(t, err, out)
		require.NoError(t, s.admin.Get(s.ctx, key, set))
		assert.True(t, revision.HaveOwnHashes(set, completed), name)
	}
}

func (s *environment) olderSets(t *testing.T) {
	for name, rule := range olderRules {
		for _, change := range []string{
			`{spec: {updateStrategy: {paused: true}}}`, `{spec: {injectionStrategy: {paused: true}}}`, `{metadata: {labels: {team: a}, annotations: {note: b}}}`,
		} {
			assert.NoError(t, s.change(t, name, change), "%s: %s", name, change)
		}
		assert.True(t, apierrors.IsInvalid(s.change(t, name, `{spec: `+rule.worse+`}`)), "%s: %s", name, rule.worse)
	}
}

func older(t *testing.T, name, spec string) *unstructured.Unstructured {
	set := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte("{metadata: {name: "+name+"}, spec: "+spec+"}"), &set.Object), name)
	set.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SidecarSet"))
	return set
}

func (s *environment) change(t *testing.T, name, change string) error {
	patch, err := yaml.YAMLToJSON([]byte(change))
	require.NoError(t, err, change)
	return s.admin.Patch(s.ctx, older(t, name, "{}"), client.RawPatch(types.MergePatchType, patch))
}
