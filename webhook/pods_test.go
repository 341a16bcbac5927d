package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
)

func handlerFor(t testing.TB, functions interceptor.Funcs, objects []client.Object, sets ...*v1alpha1.SidecarSet) *podHandler {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(functions)
	builder = builder.WithIndex(&appsv1.ControllerRevision{}, setOfRevision, func(o client.Object) []string {
		return []string{o.GetLabels()[v1alpha1.SidecarSetNameLabel]}
	})
	index := newSetIndex(logr.Discard())
	for _, set := range sets {
		index.put(set)
	}
	reader := builder.Build()
	return &podHandler{
		decoder: admission.NewDecoder(scheme), sets: index, namespaces: reader, now: metav1.Now,
		revisions: revisionSource{reader: reader, systemNamespace: "system"},
	}
}

func requestFor(t testing.TB, pod *corev1.Pod) admission.Request {
	raw, err := json.Marshal(pod)
	require.NoError(t, err)
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "default", Object: runtime.RawExtension{Raw: raw}}}
}

func inProduction(name string) *v1alpha1.SidecarSet {
	set := fixture.SidecarSet(name, fixture.Sidecar("side"))
	set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	return set
}

func TestSpec3_ANamespaceThatCannotBeLookedUpRefusesThePod(t *testing.T) {
	failing := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("cache is broken")
	}}
	response := handlerFor(t, failing, nil, inProduction("s")).Handle(t.Context(), requestFor(t, fixture.Pod()))
	assert.False(t, response.Allowed)
	assert.Equal(t, int32(http.StatusInternalServerError), response.Result.Code)
	assert.Equal(t, "SidecarSet s: look up namespace default for its namespaceSelector: cache is broken", response.Result.Message)

	response = handlerFor(t, interceptor.Funcs{}, nil, inProduction("s")).Handle(t.Context(), requestFor(t, fixture.Pod()))
	assert.False(t, response.Allowed)
	assert.Contains(t, response.Result.Message, `namespaces "default" not found`)
}

func TestSpec3_AnEmptyPodNamespaceIsTheRequests(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	set.Spec.Namespace = "default"
	pod := fixture.Pod()
	pod.Namespace = ""
	response := handlerFor(t, interceptor.Funcs{}, nil, set).Handle(t.Context(), requestFor(t, pod))
	require.True(t, response.Allowed)
	assert.NotEmpty(t, response.Patch)
	pod.Namespace = "other"
	assert.Empty(t, handlerFor(t, interceptor.Funcs{}, nil, set).Handle(t.Context(), requestFor(t, pod)).Patch)
}

func TestSpec3_EndedPodsAreLeftAlone(t *testing.T) {
	pod := fixture.Pod()
	pod.Status.Phase = corev1.PodSucceeded
	response := handlerFor(t, interceptor.Funcs{}, nil, fixture.SidecarSet("s", fixture.Sidecar("side"))).Handle(t.Context(), requestFor(t, pod))
	assert.True(t, response.Allowed)
	assert.Empty(t, response.Patch)
}

func TestSpec4_12_ASetThatCannotBeInjectedRefusesOnlyItsPods(t *testing.T) {
	unhashed := fixture.SidecarSet("s", fixture.Sidecar("side"))
	unhashed.Annotations = nil
	handler := handlerFor(t, interceptor.Funcs{}, nil, unhashed)
	response := handler.Handle(t.Context(), requestFor(t, fixture.Pod()))
	assert.False(t, response.Allowed)
	assert.Equal(t, int32(http.StatusForbidden), response.Result.Code)
	assert.Contains(t, response.Result.Message, "SidecarSet s has no hash annotations")
	other := fixture.Pod()
	other.Labels = nil
	assert.True(t, handler.Handle(t.Context(), requestFor(t, other)).Allowed)
}

func TestSpec4_11_APinnedRevisionIsInjectedOrThePodIsRefused(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	old, err := revision.New(set, "system", 1)
	require.NoError(t, err)
	set.Spec.Containers[0].Image = "side:v2"
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: &old.Name, Policy: v1alpha1.AlwaysSidecarSetInjectRevisionPolicy}

	handler := handlerFor(t, interceptor.Funcs{}, []client.Object{old}, set)
	for range 2 {
		response := handler.Handle(t.Context(), requestFor(t, fixture.Pod(fixture.Container("app"))))
		require.True(t, response.Allowed)
		assert.Contains(t, string(response.Patch), "side:v1")
		assert.NotContains(t, string(response.Patch), "side:v2")
	}
	response := handlerFor(t, interceptor.Funcs{}, nil, set).Handle(t.Context(), requestFor(t, fixture.Pod()))
	assert.False(t, response.Allowed)
	assert.Contains(t, response.Result.Message, "SidecarSet s: inject revision "+old.Name+": it does not exist")

	set.Spec.InjectionStrategy.Paused = true
	response = handlerFor(t, interceptor.Funcs{}, nil, set).Handle(t.Context(), requestFor(t, fixture.Pod()))
	assert.True(t, response.Allowed, "a paused set asks for no revision")
}

func TestGarbageIsABadRequest(t *testing.T) {
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Object: runtime.RawExtension{Raw: []byte("{")}}}
	response := handlerFor(t, interceptor.Funcs{}, nil).Handle(t.Context(), request)
	assert.Equal(t, int32(http.StatusBadRequest), response.Result.Code)
}
