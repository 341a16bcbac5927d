package sidecarsets

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/validation"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/revisions"
	"github.com/outrigger/outrigger/webhook/fallback"
)

func TestSpec5_TheWhitelistAppliesUnlessTheFeatureGateIsOn(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	set := fixture.SidecarSet("s", fixture.Sidecar("a"))
	set.Spec.PatchPodMetadata = []v1alpha1.SidecarSetPatchPodMetadata{{Annotations: map[string]string{"oom-score": "1"}}}
	for _, test := range []struct {
		whitelist string
		open      bool
		want      int
	}{
		{"", false, 1},
		{"", true, 0},
		{`{"rules":[{"allowedAnnotationKeyExprs":["^oom-score$"]}]}`, false, 0},
		{`{"rules":[{"allowedAnnotationKeyExprs":["^else$"]}]}`, false, 1},
		{`{"rules":[{"allowedAnnotationKeyExprs":["^else$"]}]}`, true, 0},
		{`broken`, true, 0},
	} {
		configuration := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: v1alpha1.ConfigurationName}}
		configuration.Data = map[string]string{v1alpha1.MetadataWhitelistKey: test.whitelist}
		v := Validator{
			Cached: fake.NewClientBuilder().WithScheme(scheme).WithObjects(configuration).Build(), SystemNamespace: "system",
			Gates: FeatureGates{PatchPodMetadataDefaultsAllowed: test.open},
		}
		v.Sets = current(v.Cached)
		ratchet := validation.NewRatchet(set, nil)
		require.NoError(t, v.compare(t.Context(), ratchet, set))
		assert.Len(t, ratchet.Rejected(), test.want, "%+v", test)
	}
}

func TestSpec5_AnUnreadableWhitelistRejects(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	set := fixture.SidecarSet("s", fixture.Sidecar("a"))
	set.Spec.PatchPodMetadata = []v1alpha1.SidecarSetPatchPodMetadata{{Annotations: map[string]string{"oom-score": "1"}}}
	down := errors.New("down")
	v := Validator{SystemNamespace: "system", Cached: fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	}).Build()}
	err = v.metadata(t.Context(), validation.NewRatchet(set, nil))
	require.ErrorIs(t, err, down)
	require.ErrorContains(t, err, "system/"+v1alpha1.ConfigurationName)
}

// The container that causes the conflict is in the pinned revision of the other SidecarSet, and not in the
// spec of that SidecarSet.
func TestSpec5_PinnedRevisionsOfOtherSetsAreRead(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	older := fixture.SidecarSet("other", fixture.Sidecar("gone"))
	recorded, err := revision.New(older, "system", 1)
	require.NoError(t, err)
	other := fixture.SidecarSet("other", fixture.Sidecar("side"))
	other.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: &recorded.Name}
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(other, recorded).
		WithIndex(&appsv1.ControllerRevision{}, revisions.SetField, revisions.SetNames).Build()
	set := fixture.SidecarSet("s", fixture.Sidecar("gone"))
	for _, stale := range []error{nil, errors.New("the watch is down")} {
		reader := fallback.Reader{Cached: stored, Live: stored, Stale: func() error { return stale }}
		v := Validator{Cached: stored, Sets: reader, Revisions: fallback.Revisions{Reader: reader, SystemNamespace: "system"}}
		ratchet := validation.NewRatchet(set, nil)
		require.NoError(t, v.conflicts(t.Context(), ratchet, set.Name))
		require.Len(t, ratchet.Rejected(), 1)
		assert.Contains(t, ratchet.Rejected()[0].Message, "SidecarSet other, whose injection is pinned to revision "+recorded.Name+", injects a container of this name")
	}
}

// updateOf returns a request for an update of a stored SidecarSet after defaulting.
func updateOf(t *testing.T, stored string, change func(map[string]any)) admission.Request {
	t.Helper()
	var set map[string]any
	require.NoError(t, json.Unmarshal([]byte(stored), &set))
	change(set)
	raw, err := json.Marshal(set)
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: raw}, OldObject: runtime.RawExtension{Raw: []byte(stored)},
	}}
	response := (&Defaulter{Decoder: admission.NewDecoder(scheme)}).Handle(t.Context(), req)
	require.True(t, response.Allowed, "%v", response.Result)
	req.Object.Raw = applied(t, raw, response.Patch)
	return req
}

func applied(t *testing.T, raw, operations []byte) []byte {
	t.Helper()
	if len(operations) == 0 {
		return raw
	}
	patch, err := jsonpatch.DecodePatch(operations)
	require.NoError(t, err)
	result, err := patch.Apply(raw)
	require.NoError(t, err)
	return result
}

// olderSet violates rules of each kind, and was stored without defaults.
const olderSet = `{"apiVersion":"apps.kruise.io/v1alpha1","kind":"SidecarSet","metadata":{"name":"s"},"spec":{
	"selector":{"matchLabels":{"app":"web"}},"updateStrategy":{"maxUnavailable":"5"},
	"injectionStrategy":{"revision":{"revisionName":"lost"}},
	"patchPodMetadata":[{"annotations":{"left-the-whitelist":"x"}}],
	"containers":[{"name":"a","image":"b","ports":[{"containerPort":70000}],"resourcesPolicy":{"targetContainersMode":"sum"}}]}}`

func spec(set map[string]any) map[string]any { return set["spec"].(map[string]any) }

func TestSpec5_ASetOfOlderRulesCanBePaused(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	down := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("down")
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("down")
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
			return ofPolicy()
		},
	}).Build()
	v := Validator{Decoder: admission.NewDecoder(scheme), Cached: down, Sets: current(down), Revisions: fallback.Revisions{Reader: current(down), SystemNamespace: "system"}, Client: down, SystemNamespace: "system"}
	for name, change := range map[string]func(map[string]any){
		"paused":           func(set map[string]any) { spec(set)["updateStrategy"].(map[string]any)["paused"] = true },
		"injection paused": func(set map[string]any) { spec(set)["injectionStrategy"].(map[string]any)["paused"] = true },
		"partition":        func(set map[string]any) { spec(set)["updateStrategy"].(map[string]any)["partition"] = 3 },
		"maxUnavailable":   func(set map[string]any) { spec(set)["updateStrategy"].(map[string]any)["maxUnavailable"] = 3 },
		"labels":           func(set map[string]any) { set["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"} },
		"annotations":      func(set map[string]any) { set["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "b"} },
		"pin removed":      func(set map[string]any) { spec(set)["injectionStrategy"] = nil },
	} {
		response := v.Handle(t.Context(), updateOf(t, olderSet, change))
		assert.True(t, response.Allowed, "%s: %v", name, response.Result)
	}
	response := v.Handle(t.Context(), updateOf(t, olderSet, func(set map[string]any) { spec(set)["selector"] = map[string]any{} }))
	assert.False(t, response.Allowed)
	assert.EqualValues(t, 422, response.Result.Code)
	response = v.Handle(t.Context(), updateOf(t, olderSet, func(set map[string]any) { spec(set)["imagePullSecrets"] = []any{map[string]any{"name": "x"}} }))
	assert.False(t, response.Allowed, "a failed check of a changed field rejects")
	assert.EqualValues(t, 500, response.Result.Code)
}

// Finalizers can keep a terminating SidecarSet for a long time.
func TestSpec5_ATerminatingSetIsValidated(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	empty := fake.NewClientBuilder().WithScheme(scheme).Build()
	v := Validator{Decoder: admission.NewDecoder(scheme), Cached: empty, Sets: current(empty), Revisions: fallback.Revisions{Reader: current(empty), SystemNamespace: "system"}, Client: empty, SystemNamespace: "system"}
	deleted := strings.Replace(olderSet, `{"name":"s"}`, `{"name":"s","deletionTimestamp":"2024-01-02T12:00:00Z","deletionGracePeriodSeconds":0,"finalizers":["a/b","c/d"]}`, 1)
	response := v.Handle(t.Context(), updateOf(t, deleted, func(set map[string]any) { spec(set)["selector"] = map[string]any{} }))
	require.False(t, response.Allowed)
	assert.EqualValues(t, 422, response.Result.Code)

	unreadable := strings.Replace(deleted, `"containerPort":70000`, `"containerPort":"http"`, 1)
	for _, stored := range []string{deleted, unreadable} {
		response = v.Handle(t.Context(), updateOf(t, stored, func(set map[string]any) { set["metadata"].(map[string]any)["finalizers"] = []any{"c/d"} }))
		assert.True(t, response.Allowed, "finalizers come off: %v", response.Result)
	}
	req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: []byte(unreadable)}, OldObject: runtime.RawExtension{Raw: []byte(deleted)},
	}}
	assert.False(t, v.Handle(t.Context(), req).Allowed, "a set must not become undecodable")
}

// The CustomResourceDefinition of SidecarSets accepts values that typed clients cannot decode.
func TestSpec5_AnUndecodableSetCanBeCorrected(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	empty := fake.NewClientBuilder().WithScheme(scheme).Build()
	decoder := admission.NewDecoder(scheme)
	v := Validator{Decoder: decoder, Cached: empty, Sets: current(empty), Revisions: fallback.Revisions{Reader: current(empty), SystemNamespace: "system"}, Client: empty, SystemNamespace: "system"}
	unreadable := strings.Replace(olderSet, `"containerPort":70000`, `"containerPort":"http"`, 1)
	correct := func(port any) admission.Request {
		return updateOf(t, unreadable, func(set map[string]any) {
			container := map[string]any{"name": "c", "image": "i", "ports": []any{map[string]any{"containerPort": port}}}
			set["spec"] = map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}, "containers": []any{container}}
		})
	}
	request := correct(80)
	response := (&Defaulter{Decoder: decoder}).Handle(t.Context(), request)
	require.True(t, response.Allowed, "%v", response.Result)
	response = v.Handle(t.Context(), request)
	assert.True(t, response.Allowed, "%v", response.Result)
	request.Object.Raw = []byte(strings.Replace(string(request.Object.Raw), `"matchLabels":{"app":"web"}`, ``, 1))
	response = v.Handle(t.Context(), request)
	assert.False(t, response.Allowed, "the correction is validated as a whole")
}

func TestSpec5_AnUpdateIsRejectedOnlyForNewErrors(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	dryRuns, answered := 0, 9
	judge := interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
		if dryRuns++; dryRuns > answered {
			return apierrors.NewTooManyRequests("slow down", 1)
		}
		pod, err := json.Marshal(object)
		require.NoError(t, err)
		var wrong field.ErrorList
		for _, port := range []string{"70000", "80000"} {
			if strings.Contains(string(pod), `"containerPort":`+port) {
				wrong = append(wrong, field.Invalid(field.NewPath("spec", "containers").Index(0).Child("ports").Index(0).Child("containerPort"), port, "too large"))
			}
		}
		if len(wrong) > 0 {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, dryRunPod, wrong)
		}
		return nil
	}}
	reader := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(judge).Build()
	v := Validator{Decoder: admission.NewDecoder(scheme), Cached: reader, Sets: current(reader), Revisions: fallback.Revisions{Reader: current(reader), SystemNamespace: "system"}, Client: reader, SystemNamespace: "system"}
	container := func(set map[string]any) map[string]any { return spec(set)["containers"].([]any)[0].(map[string]any) }
	response := v.Handle(t.Context(), updateOf(t, olderSet, func(set map[string]any) { container(set)["image"] = "c" }))
	assert.True(t, response.Allowed, "%v", response.Result)
	response = v.Handle(t.Context(), updateOf(t, olderSet, func(set map[string]any) {
		container(set)["ports"] = []any{map[string]any{"containerPort": 80000}}
	}))
	require.False(t, response.Allowed)
	require.Len(t, response.Result.Details.Causes, 1)
	assert.Equal(t, "spec.containers[0].ports[0].containerPort", response.Result.Details.Causes[0].Field)
	dryRuns, answered = 0, 1
	response = v.Handle(t.Context(), updateOf(t, olderSet, func(set map[string]any) { container(set)["image"] = "c" }))
	assert.EqualValues(t, http.StatusInternalServerError, response.Result.Code, "without an answer about the stored object, the error is not known to be new")
}

// current returns a reader of a cache that is not stale.
func current(cached client.Reader) fallback.Reader {
	return fallback.Reader{Cached: cached, Live: cached, Stale: func() error { return nil }}
}
