package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/revisions"
	"github.com/outrigger/outrigger/webhook/fallback"
	"github.com/outrigger/outrigger/webhook/review"
	"github.com/outrigger/outrigger/webhook/server"
)

func handlerFor(t testing.TB, functions interceptor.Funcs, objects []client.Object, sets ...*v1alpha1.SidecarSet) *Handler {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(functions).
		WithIndex(&appsv1.ControllerRevision{}, revisions.SetField, revisions.SetNames)
	metrics := newMetrics(prometheus.NewRegistry())
	index := newSetIndex(logr.Discard(), metrics)
	for _, set := range sets {
		index.put(set)
	}
	reader := builder.Build()
	cached := fallback.Reader{Cached: reader, Live: reader, Stale: func() error { return nil }}
	return &Handler{
		sets: &setSource{Reader: cached, informed: index}, namespaces: cached, metrics: metrics, now: metav1.Now,
		revisions: fallback.Revisions{Reader: cached, SystemNamespace: "system"},
	}
}

// reviewOf returns the request of the API server for a new pod.
func reviewOf(t testing.TB, pod any) []byte {
	return reviewAs(t, "1", pod)
}

func reviewAs(t testing.TB, request types.UID, pod any) []byte {
	raw, err := json.Marshal(pod)
	require.NoError(t, err)
	body, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta(), Request: &admissionv1.AdmissionRequest{
		UID: request, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "default", Object: runtime.RawExtension{Raw: raw},
	}})
	require.NoError(t, err)
	return body
}

func admitted(t testing.TB, handler *Handler, pod any) *admissionv1.AdmissionResponse {
	t.Helper()
	return admittedAs(t, handler, "1", pod)
}

func admittedAs(t testing.TB, handler *Handler, request types.UID, pod any) *admissionv1.AdmissionResponse {
	t.Helper()
	buffers := &server.Buffers{}
	buffers.Body.Write(reviewAs(t, request, pod))
	response, err := handler.Answer(t.Context(), buffers)
	require.NoError(t, err)
	assert.Equal(t, request, response.UID)
	return response
}

func inProduction(name string) *v1alpha1.SidecarSet {
	set := fixture.SidecarSet(name, fixture.Sidecar("side"))
	set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}
	return set
}

func TestSpec3_AnUnreadableNamespaceRejectsThePod(t *testing.T) {
	failing := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("cache is broken")
	}}
	response := admitted(t, handlerFor(t, failing, nil, inProduction("s")), fixture.Pod())
	assert.False(t, response.Allowed)
	assert.Equal(t, int32(http.StatusInternalServerError), response.Result.Code)
	assert.Equal(t, "SidecarSet s: look up namespace default for its namespaceSelector: cache is broken", response.Result.Message)

	paused, elsewhere := inProduction("s"), inProduction("s")
	paused.Spec.InjectionStrategy.Paused, elsewhere.Spec.Namespace = true, "other"
	for _, set := range []*v1alpha1.SidecarSet{paused, elsewhere} {
		assert.True(t, admitted(t, handlerFor(t, failing, nil, set), fixture.Pod()).Allowed, "the SidecarSet cannot inject the pod")
	}

	response = admitted(t, handlerFor(t, interceptor.Funcs{}, nil, inProduction("s")), fixture.Pod())
	assert.False(t, response.Allowed)
	assert.Contains(t, response.Result.Message, `namespaces "default" not found`)
}

func TestSpec3_AnEmptyPodNamespaceIsTheRequests(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	set.Spec.Namespace = "default"
	pod := fixture.Pod()
	pod.Namespace = ""
	response := admitted(t, handlerFor(t, interceptor.Funcs{}, nil, set), pod)
	require.True(t, response.Allowed)
	assert.NotEmpty(t, response.Patch)
	pod.Namespace = "other"
	assert.Empty(t, admitted(t, handlerFor(t, interceptor.Funcs{}, nil, set), pod).Patch)
}

func TestSpec3_TheStatusFromTheClientIsIgnored(t *testing.T) {
	handler := handlerFor(t, interceptor.Funcs{}, nil, fixture.SidecarSet("s", fixture.Sidecar("side")))
	for name, change := range map[string]func(*corev1.Pod){
		"succeeded": func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"failed":    func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"deleted":   func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) },
	} {
		pod := fixture.Pod(fixture.Container("app"))
		change(pod)
		response := admitted(t, handler, pod)
		assert.True(t, response.Allowed, name)
		assert.Contains(t, string(response.Patch), `"name":"side"`, name)
	}
}

// unparsable changes c so that the sidecar cannot be injected.
func unparsable(c *v1alpha1.SidecarContainer) {
	c.ResourcesPolicy = &v1alpha1.ResourcesPolicy{TargetContainersMode: "sum", TargetContainersNameRegex: "("}
}

// The SidecarSet was edited while the webhook was not called, so its annotations contain the hashes of the
// previous content, and defaults are missing.
func TestSpec2_APodGetsTheHashesOfTheInjectedContent(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	require.NoError(t, revision.Complete(set, nil))
	edited := set.DeepCopy()
	edited.Spec.Containers = []v1alpha1.SidecarContainer{fixture.Sidecar("side", func(c *v1alpha1.SidecarContainer) { c.Image = "side:v2" })}
	completed, err := revision.Completed(edited)
	require.NoError(t, err)
	require.NotEqual(t, set.Annotations, completed.Annotations)
	for name, annotations := range map[string]map[string]string{"outdated": set.Annotations, "none": nil} {
		edited.Annotations = annotations
		response := admitted(t, handlerFor(t, interceptor.Funcs{}, nil, edited), fixture.Pod(fixture.Container("app")))
		require.True(t, response.Allowed, name)
		for _, hash := range completed.Annotations {
			assert.Contains(t, string(response.Patch), hash, name)
		}
		assert.Contains(t, string(response.Patch), `"image":"side:v2"`, name)
		assert.Contains(t, string(response.Patch), `"imagePullPolicy":"IfNotPresent"`, name)
	}
}

func TestSpec3_MirrorPodsAreNeverInjected(t *testing.T) {
	pod := fixture.Pod(fixture.Container("app"))
	pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
	broken := fixture.SidecarSet("broken", fixture.Sidecar("other", unparsable))
	response := admitted(t, handlerFor(t, interceptor.Funcs{}, nil, fixture.SidecarSet("s", fixture.Sidecar("side")), broken), pod)
	assert.True(t, response.Allowed, "nor rejected")
	assert.Empty(t, response.Patch)

	handler := handlerFor(t, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("no answer")
	}}, nil)
	handler.sets.Stale = func() error { return errors.New("the watch is down") }
	handler.sets.clock = clock.RealClock{}
	assert.True(t, admitted(t, handler, pod).Allowed, "the SidecarSets are not needed")
}

func TestSpec4_12_AnInvalidSetRejectsOnlyItsPods(t *testing.T) {
	handler := handlerFor(t, interceptor.Funcs{}, nil, fixture.SidecarSet("s", fixture.Sidecar("side", unparsable)))
	response := admitted(t, handler, fixture.Pod())
	assert.False(t, response.Allowed)
	assert.Equal(t, int32(http.StatusForbidden), response.Result.Code)
	assert.Contains(t, response.Result.Message, "SidecarSet s: container side: resourcesPolicy")
	other := fixture.Pod()
	other.Labels = nil
	assert.True(t, admitted(t, handler, other).Allowed)
}

func TestSpec4_11_APinnedRevisionIsInjectedOrThePodIsRejected(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	old, err := revision.New(set, "system", 1)
	require.NoError(t, err)
	set.Spec.Containers[0].Image = "side:v2"
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: &old.Name, Policy: v1alpha1.AlwaysSidecarSetInjectRevisionPolicy}

	handler := handlerFor(t, interceptor.Funcs{}, []client.Object{old}, set)
	for range 2 {
		response := admitted(t, handler, fixture.Pod(fixture.Container("app")))
		require.True(t, response.Allowed)
		assert.Contains(t, string(response.Patch), "side:v1")
		assert.NotContains(t, string(response.Patch), "side:v2")
	}
	response := admitted(t, handlerFor(t, interceptor.Funcs{}, nil, set), fixture.Pod())
	assert.False(t, response.Allowed)
	assert.Contains(t, response.Result.Message, "SidecarSet s: inject revision "+old.Name+": it does not exist")

	live, reads := handler.revisions.Live, 0
	handler = handlerFor(t, interceptor.Funcs{}, nil, set)
	handler.revisions.Live = interceptor.NewClient(handler.revisions.Live.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if reads++; reads > 1 {
				return live.List(ctx, list, options...)
			}
			return c.List(ctx, list, options...)
		},
	})
	now := time.Now()
	handler.now = func() metav1.Time { return metav1.NewTime(now) }
	for range 3 {
		assert.False(t, admitted(t, handler, fixture.Pod()).Allowed)
	}
	assert.Equal(t, 1, reads)
	now = now.Add(time.Second)
	assert.True(t, admitted(t, handler, fixture.Pod()).Allowed, "the cache does not contain the revision yet")

	set.Spec.InjectionStrategy.Paused = true
	response = admitted(t, handlerFor(t, interceptor.Funcs{}, nil, set), fixture.Pod())
	assert.True(t, response.Allowed, "a paused set asks for no revision")
}

func TestSpec4_11_PartialSplitsThePodsOfOneReplicaSet(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	old, err := revision.New(set, "system", 1)
	require.NoError(t, err)
	set.Spec.Containers[0].Image = "side:v2"
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: &old.Name, Policy: v1alpha1.PartialSidecarSetInjectRevisionPolicy}
	set.Spec.UpdateStrategy.Partition = new(intstr.FromString("50%"))
	handler := handlerFor(t, interceptor.Funcs{}, []client.Object{old}, set)
	pod := fixture.Pod(fixture.Container("app"))
	pod.Name, pod.GenerateName = "", "web-5d9c-"
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", UID: "rs", Controller: new(true)}}
	skipped := 0
	for i := range 40 {
		request := types.UID(fmt.Sprintf("request-%d", i))
		patch := string(admittedAs(t, handler, request, pod).Patch)
		if strings.Contains(patch, "side:v1") {
			skipped++
		}
		assert.Equal(t, strings.Contains(patch, "side:v1"), strings.Contains(string(admittedAs(t, handler, request, pod).Patch), "side:v1"), "sent again")
	}
	assert.InDelta(t, 20, skipped, 8)
}

// Pods can be created before the operator registers the new revision.
func TestSpec4_11_APinToTheCurrentVersionNeedsNoRevision(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	older, err := revision.New(set, "system", 1)
	require.NoError(t, err)
	set.Spec.Containers[0].Image = "side:v2"
	set.Labels = map[string]string{v1alpha1.CustomVersionLabel: "two"}
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{
		CustomVersion: new("two"), Policy: v1alpha1.AlwaysSidecarSetInjectRevisionPolicy,
	}
	response := admitted(t, handlerFor(t, interceptor.Funcs{}, []client.Object{older}, set), fixture.Pod(fixture.Container("app")))
	require.True(t, response.Allowed, "%v", response.Result)
	assert.Contains(t, string(response.Patch), "side:v2")

	set.Spec.InjectionStrategy.Revision.CustomVersion = new("three")
	response = admitted(t, handlerFor(t, interceptor.Funcs{}, []client.Object{older}, set), fixture.Pod(fixture.Container("app")))
	assert.False(t, response.Allowed)
	assert.Contains(t, response.Result.Message, `inject custom version "three": it does not exist`)

	set.Labels[v1alpha1.CustomVersionLabel] = "three"
	set.Spec.InjectionStrategy.Revision.RevisionName = new("gone")
	response = admitted(t, handlerFor(t, interceptor.Funcs{}, []client.Object{older}, set), fixture.Pod(fixture.Container("app")))
	assert.False(t, response.Allowed, "a name counts more")
}

func TestSpec4_11_APinSurvivesRelabellingTheSet(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	set.Labels = map[string]string{v1alpha1.CustomVersionLabel: "one"}
	recorded, err := revision.New(set, "system", 1)
	require.NoError(t, err)
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{
		RevisionName: new(""), CustomVersion: new("one"), Policy: v1alpha1.AlwaysSidecarSetInjectRevisionPolicy,
	}
	set.Labels[v1alpha1.CustomVersionLabel] = "two"
	revision.MakeLatest(recorded, set, 1)
	response := admitted(t, handlerFor(t, interceptor.Funcs{}, []client.Object{recorded}, set), fixture.Pod(fixture.Container("app")))
	require.True(t, response.Allowed, "%v", response.Result)
	assert.Contains(t, string(response.Patch), "side:v1")
}

func TestSpec3_ASetWithInvalidSelectorsRejectsThePodsThatItCouldMatch(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	set.Spec.Namespace = "default"
	set.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Is", Values: []string{"a"}}}
	handler := handlerFor(t, interceptor.Funcs{}, nil, set)
	response := admitted(t, handler, fixture.Pod(fixture.Container("app")))
	require.False(t, response.Allowed)
	assert.Equal(t, `SidecarSet s could match this pod, but its selectors are invalid: spec.selector: "Is" is not a valid label selector operator; correct the SidecarSet, or set its spec.injectionStrategy.paused to true`, response.Result.Message)

	other, elsewhere := fixture.Pod(), fixture.Pod()
	other.Labels = map[string]string{"app": "other"}
	elsewhere.Namespace = "elsewhere"
	assert.True(t, admitted(t, handler, other).Allowed, "a requirement that can be read does not hold")
	assert.True(t, admitted(t, handler, elsewhere).Allowed, "nor is its namespace in scope")

	paused := set.DeepCopy()
	paused.Spec.InjectionStrategy.Paused = true
	assert.True(t, admitted(t, handlerFor(t, interceptor.Funcs{}, nil, paused), fixture.Pod()).Allowed)
}

func TestSpec4_IncompleteInjectionCausesAWarning(t *testing.T) {
	first, second := fixture.SidecarSet("first", fixture.Sidecar("side")), fixture.SidecarSet("second", fixture.Sidecar("other"))
	first.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
	first.Spec.Volumes = []corev1.Volume{{Name: "v"}, {Name: "unused"}}
	handler := handlerFor(t, interceptor.Funcs{}, nil, first, second)
	marked := func(name string) corev1.Container {
		container := fixture.Container(name)
		container.Env = []corev1.EnvVar{{Name: v1alpha1.InjectedEnv, Value: "true"}}
		return container
	}
	pod := fixture.Pod(fixture.Container("app"), marked("sly"), marked("side"))
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}, {Name: "unused"}}
	native := marked("native")
	native.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []corev1.Container{marked("ends"), native}
	response := admitted(t, handler, pod)
	require.True(t, response.Allowed)
	assert.Equal(t, []string{
		"container sly: because of its variable IS_INJECTED, its volumes, variables and resources are not shared with SidecarSet first, second",
		"container native: because of its variable IS_INJECTED, its volumes, variables and resources are not shared with SidecarSet first, second",
		"volume v: the pod has a volume of this name, so the volume of SidecarSet first is not added",
	}, response.Warnings)
	assert.Empty(t, admitted(t, handler, fixture.Pod(fixture.Container("app"))).Warnings)
	pod.Labels = nil
	assert.Empty(t, admitted(t, handler, pod).Warnings, "a pod that nothing matches")
}
