package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/api/v1beta1"
)

const definition = "sidecarsets.apps.kruise.io"

// manifests contains SidecarSets in both API versions. The test replaces NAME by the name of the SidecarSet.
var manifests = map[string]string{
	"v1alpha1 with a namespace": `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: NAME, labels: {apps.kruise.io/sidecarset-custom-version: v1, team: a}}
spec: {selector: {matchLabels: {app: NAME}}, namespace: kube-public, containers: [{name: side, image: "side:v1", fieldOfTheFuture: {a: 1}}]}
`,
	"v1alpha1 with a selector of one namespace": `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: NAME}
spec: {selector: {matchLabels: {app: NAME}}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-public}}, containers: [{name: side, image: "side:v1"}]}
`,
	"v1alpha1 with both": `
apiVersion: apps.kruise.io/v1alpha1
kind: SidecarSet
metadata: {name: NAME, annotations: {note: mine}}
spec: {selector: {matchLabels: {app: NAME}}, namespace: kube-public, namespaceSelector: {matchLabels: {env: prod}}, containers: [{name: side, image: "side:v1"}]}
`,
	"v1beta1 with a selector of one namespace": `
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: NAME}
spec: {selector: {matchLabels: {app: NAME}}, customVersion: v1, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-public}}, containers: [{name: side, image: "side:v1", fieldOfTheFuture: {a: 1}}]}
`,
	"v1beta1 with a selector of many": `
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: NAME, labels: {team: a}}
spec: {selector: {matchLabels: {app: NAME}}, namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [kube-public]}]}, containers: [{name: side, image: "side:v1"}]}
`,
}

// versions tests a SidecarSet in both API versions.
type versions struct {
	t    *testing.T
	ctx  context.Context
	name string
}

func newVersions(t *testing.T) *versions {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	v := &versions{t: t, ctx: ctx, name: "versions"}
	t.Cleanup(func() {
		set := &v1alpha1.SidecarSet{}
		set.Name = v.name
		require.NoError(t, client.IgnoreNotFound(stack.kube.Delete(context.WithoutCancel(ctx), set)))
	})
	return v
}

func (v *versions) manifest(which string) string {
	return strings.ReplaceAll(manifests[which], "NAME", v.name)
}

// must runs kubectl, requires that kubectl succeeds, and returns the output.
func (v *versions) must(stdin string, args ...string) string {
	v.t.Helper()
	out, err := kubectl(v.ctx, stdin, args...)
	require.NoError(v.t, err, out)
	return out
}

func (v *versions) read(version string) (*unstructured.Unstructured, error) {
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: version, Kind: "SidecarSet"})
	return set, stack.kube.Get(v.ctx, client.ObjectKey{Name: v.name}, set)
}

func (v *versions) get(version string) *unstructured.Unstructured {
	v.t.Helper()
	set, err := v.read(version)
	require.NoError(v.t, err)
	return set
}

func (v *versions) await(what string, done func() bool) {
	v.t.Helper()
	err := wait.PollUntilContextCancel(v.ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) { return done(), nil })
	require.NoError(v.t, err, "wait for %s", what)
}

func (v *versions) scope(version string) map[string]any {
	v.t.Helper()
	set := v.get(version)
	spec := set.Object["spec"].(map[string]any)
	found := map[string]any{"label": set.GetLabels()[v1alpha1.CustomVersionLabel]}
	for _, field := range []string{"namespace", "namespaceSelector", "customVersion"} {
		if value, present := spec[field]; present {
			found[field] = value
		}
	}
	return found
}

func TestSetsAreTheSameInBothVersions(t *testing.T) {
	v := newVersions(t)
	one := map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "kube-public"}}
	for _, which := range []string{"v1alpha1 with a namespace", "v1beta1 with a selector of one namespace"} {
		out := v.must(v.manifest(which), "apply", "-f", "-")
		assert.Contains(t, out, `unknown field "spec.containers[0].fieldOfTheFuture": it is kept, but not injected`)
		assert.Equal(t, map[string]any{"label": "v1", "namespace": "kube-public"}, v.scope("v1alpha1"), which)
		assert.Equal(t, map[string]any{"label": "", "customVersion": "v1", "namespaceSelector": one}, v.scope("v1beta1"), which)
		alpha, beta := v.get("v1alpha1"), v.get("v1beta1")
		assert.Equal(t, alpha.GetAnnotations(), beta.GetAnnotations(), which)
		assert.Equal(t, alpha.Object["spec"].(map[string]any)["containers"], beta.Object["spec"].(map[string]any)["containers"], which)
		assert.Len(t, beta.GetAnnotations()[v1alpha1.HashAnnotation], 64, "defaults and hashes are written, whatever the version")
		v.must("", "delete", definition, v.name)
	}
}

// A user may apply a SidecarSet in one API version, and modify the SidecarSet in the other API version.
func TestAppliedManifestsDoNotDrift(t *testing.T) {
	for which := range manifests {
		for name, how := range map[string][]string{"by the client": {}, "by the server": {"--server-side", "--field-manager=me"}} {
			t.Run(which+" "+name, func(t *testing.T) {
				v := newVersions(t)
				manifest := v.manifest(which)
				v.must(manifest, append([]string{"apply", "-f", "-"}, how...)...)
				spec := v.get("v1alpha1").Object["spec"]
				for _, version := range []string{"v1alpha1", "v1beta1"} {
					v.must("", "annotate", "sidecarsets."+version+".apps.kruise.io", v.name, "touched="+version, "--overwrite")
				}
				v.must(manifest, append([]string{"diff", "-f", "-"}, how...)...)
				v.await("a second apply to write nothing", func() bool {
					before := v.get("v1alpha1").GetResourceVersion()
					v.must(manifest, append([]string{"apply", "-f", "-"}, how...)...)
					return before == v.get("v1alpha1").GetResourceVersion()
				})
				assert.Equal(t, spec, v.get("v1alpha1").Object["spec"])
			})
		}
	}
}

func TestManifestsMoveFromOneVersionToTheOther(t *testing.T) {
	v := newVersions(t)
	apply := func(which string) {
		t.Helper()
		v.must(v.manifest(which), "apply", "--server-side", "--field-manager=me", "-f", "-")
	}
	apply("v1alpha1 with both")
	apply("v1beta1 with a selector of one namespace")
	assert.Equal(t, map[string]any{"label": "v1", "namespace": "kube-public"}, v.scope("v1alpha1"), "what the new manifest leaves out is gone")
	apply("v1alpha1 with a selector of one namespace")
	assert.Equal(t, map[string]any{"label": "", "namespaceSelector": map[string]any{
		"matchLabels": map[string]any{"kubernetes.io/metadata.name": "kube-public"},
	}}, v.scope("v1alpha1"))
	for _, entry := range v.get("v1alpha1").GetManagedFields() {
		assert.Equal(t, "apps.kruise.io/v1alpha1", entry.APIVersion, "%s", entry.Manager)
	}
}

// The documents contain this command. kubectl uses the newest API version.
func TestCustomVersionsAreSetByKubectlLabel(t *testing.T) {
	v := newVersions(t)
	v.must(v.manifest("v1beta1 with a selector of one namespace"), "apply", "-f", "-")
	v.must("", "label", "sidecarset", v.name, v1alpha1.CustomVersionLabel+"=v2")
	assert.Equal(t, "v2", v.scope("v1alpha1")["label"])
	assert.Equal(t, "v2", v.scope("v1beta1")["customVersion"])
}

func TestRejectionsInV1beta1NameTheField(t *testing.T) {
	for field, spec := range map[string]string{
		"spec.selector":            `{containers: [{name: side, image: "side:v1"}]}`,
		"spec.customVersion":       `{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], customVersion: "not a label"}`,
		"spec.namespaceSelector":   `{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], namespaceSelector: {matchExpressions: [{key: x, operator: Near}]}}`,
		"spec.containers[0].name":  `{selector: {matchLabels: {app: x}}, containers: [{image: "side:v1"}]}`,
		`unknown field "spec.typ"`: `{selector: {matchLabels: {app: x}}, containers: [{name: side, image: "side:v1"}], typ: x}`,
	} {
		out, err := kubectl(t.Context(), "{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: bad}, spec: "+spec+"}", "apply", "-f", "-")
		require.Error(t, err, "accepted: %s", out)
		assert.Contains(t, out, field)
		assert.NotContains(t, out, "Internal error")
	}
}

func TestColumnsAndExplanationsAreTheSameInBothVersions(t *testing.T) {
	v := newVersions(t)
	v.must(v.manifest("v1alpha1 with both"), "apply", "-f", "-")
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		header, _, _ := strings.Cut(v.must("", "get", "sidecarsets."+version+".apps.kruise.io", v.name), "\n")
		assert.Equal(t, []string{"NAME", "MATCHED", "UPDATED", "READY", "AGE"}, strings.Fields(header), version)
		explained := v.must("", "explain", "sidecarset.spec.updateStrategy.maxUnavailable", "--api-version=apps.kruise.io/"+version)
		assert.Contains(t, explained, "limits the matched pods that are unavailable")
	}
}

func (v *versions) conversion() string {
	v.t.Helper()
	return v.must("", "get", "crd", definition, "-o", "jsonpath={.spec.conversion}")
}

func TestTheDefinitionCanBeAppliedAgain(t *testing.T) {
	v := newVersions(t)
	v.must(v.manifest("v1alpha1 with both"), "apply", "-f", "-")
	before := v.conversion()
	assert.Contains(t, before, `"strategy":"Webhook"`)
	for _, how := range [][]string{{"--server-side", "--force-conflicts"}, {}, {}} {
		v.must("", append([]string{"apply", "-k", "../../config/crd"}, how...)...)
		assert.Equal(t, before, v.conversion(), "apply %v", how)
	}
	t.Run("ReplacedOneIsPutRight", func(t *testing.T) {
		v.must("", "replace", "-k", "../../config/crd")
		v.await("the conversion to be written again", func() bool { return v.conversion() == before })
		v.await("the API server to use it", func() bool {
			set, err := v.read("v1beta1")
			return err == nil && set.GetAnnotations()[v1beta1.V1alpha1ScopeAnnotation] != ""
		})
	})
	t.Run("ACertificateThatIsGoneIsPutBack", func(t *testing.T) {
		v.must("", "patch", "crd", definition, "--type=json", "-p", `[{"op":"remove","path":"/spec/conversion/webhook/clientConfig/caBundle"}]`)
		v.await("the certificate", func() bool { return v.conversion() == before })
	})
}

// While the webhook is down, no process converts SidecarSets. The API server still serves the stored version,
// and the operator still writes the status.
func TestWithoutTheWebhookTheStoredVersionLives(t *testing.T) {
	v := newVersions(t)
	for name, apply := range map[string][]string{
		"a": {"apply", "--server-side", "--field-manager=me", "-f", "-"},
		"b": {"apply", "-f", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVersions(t)
			v.must(v.manifest("v1beta1 with a selector of one namespace"), apply...)
			v.await("the first status", func() bool { return status(v.get("v1alpha1"), "observedGeneration") == int64(1) })
			owners := v.get("v1alpha1").GetManagedFields()

			require.NoError(t, stack.Kill("webhook"))
			t.Cleanup(func() { require.NoError(t, stack.StartAgain(context.WithoutCancel(v.ctx), "webhook")) })
			// The operator corrects the value with a write of the status, which does not call the webhook.
			patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"matchedPods":7}}`))
			require.NoError(t, stack.kube.Status().Patch(v.ctx, v.get("v1alpha1"), patch, client.FieldOwner("outrigger")))
			v.await("status to be written", func() bool { return status(v.get("v1alpha1"), "matchedPods") == int64(0) })
			assert.Len(t, v.get("v1alpha1").GetManagedFields(), len(owners), "who owns a field is still known")
			v.must("", "get", "sidecarsets.v1alpha1.apps.kruise.io")
		})
	}
	v.must(v.manifest("v1alpha1 with both"), "apply", "-f", "-")
	v.await("v1beta1 to be served again", func() bool { _, err := v.read("v1beta1"); return err == nil })
	assert.Contains(t, fmt.Sprint(v.scope("v1beta1")), "kube-public")
}

func status(set *unstructured.Unstructured, field string) any {
	value, _, _ := unstructured.NestedFieldNoCopy(set.Object, "status", field)
	return value
}
