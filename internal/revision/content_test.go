package revision

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func set(image string) *v1alpha1.SidecarSet {
	return &v1alpha1.SidecarSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "mesh", UID: "set-uid",
			Labels: map[string]string{v1alpha1.CustomVersionLabel: "7", "team": "x"},
			Annotations: map[string]string{
				v1alpha1.HashAnnotation: "h", v1alpha1.HashWithoutImageAnnotation: "w", "other": "x",
			},
		},
		Spec: v1alpha1.SidecarSetSpec{
			Selector:   &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Containers: []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "proxy", Image: image}}},
			Volumes:    []corev1.Volume{{Name: "tmp"}},
		},
	}
}

const contentV1 = `{"spec":{"$patch":"replace","volumes":[{"name":"tmp"}],"containers":[{"name":"proxy","image":"proxy:v1","resources":{},"upgradeStrategy":{},"shareVolumePolicy":{}}],` +
	`"initContainers":null,"imagePullSecrets":null,"patchPodMetadata":null}}`

// briefV1 is contentV1 in the form of earlier releases.
const briefV1 = `{"spec":{"volumes":[{"name":"tmp"}],"containers":[{"name":"proxy","image":"proxy:v1","resources":{},"upgradeStrategy":{},"shareVolumePolicy":{}}]}}`

func TestSpec6_ContentHasTheRevisionedFieldsAlone(t *testing.T) {
	got, err := Content(&set("proxy:v1").Spec)
	require.NoError(t, err)
	assert.Equal(t, contentV1, string(got))

	full := v1alpha1.SidecarSetSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "s"}},
		InitContainers:   []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "init"}}},
		PatchPodMetadata: []v1alpha1.SidecarSetPatchPodMetadata{{Annotations: map[string]string{"a": "b"}}},
	}
	got, err = Content(&full)
	require.NoError(t, err)
	assert.Equal(t, `{"spec":{"$patch":"replace","volumes":null,"containers":null,"initContainers":[{"name":"init","resources":{},"upgradeStrategy":{},"shareVolumePolicy":{}}],`+
		`"imagePullSecrets":[{"name":"s"}],"patchPodMetadata":[{"annotations":{"a":"b"}}]}}`, string(got))
}

func TestSpec4_11_RestoreReplacesTheRevisionedFieldsAlone(t *testing.T) {
	onto := set("proxy:v2").Spec
	onto.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "not in the revision"}}
	want := set("proxy:v1").Spec
	require.NoError(t, Restore([]byte(contentV1), &onto))
	assert.Equal(t, want, onto)
}

func TestSpec6_RestoreToleratesPatchMarkersAndUnknownKeys(t *testing.T) {
	onto := set("proxy:v2").Spec
	require.NoError(t, Restore([]byte(`{"kind":"x","spec":{"$patch":"replace","future":1,
		"volumes":[{"name":"tmp","$patch":"merge"}],"containers":[{"name":"proxy","image":"proxy:v1","future":{}}]}}`), &onto))
	assert.Equal(t, set("proxy:v1").Spec, onto)
}

func TestSpec6_RestoreRejectsDataWithoutContent(t *testing.T) {
	for _, data := range []string{``, `null`, `{}`, `{"spec":null}`, `{"spec":{"containers":"x"}}`} {
		onto := set("proxy:v2").Spec
		assert.Error(t, Restore([]byte(data), &onto), data)
		assert.Equal(t, set("proxy:v2").Spec, onto, data)
	}
}

func TestSpec6_EqualComparesMeaning(t *testing.T) {
	for _, c := range []struct {
		name, other string
		equal       bool
	}{
		{"same bytes", contentV1, true},
		{"without empty fields", briefV1, true},
		{"other order, markers, explicit emptiness", `{"spec":{"$patch":"replace","containers":[{"image":"proxy:v1","name":"proxy"}],"initContainers":[],
			"imagePullSecrets":null,"volumes":[{"name":"tmp"}]}}`, true},
		{"other image", `{"spec":{"volumes":[{"name":"tmp"}],"containers":[{"name":"proxy","image":"proxy:v2"}]}}`, false},
		{"not content", `[]`, false},
	} {
		assert.Equal(t, c.equal, Equal([]byte(contentV1), []byte(c.other)), c.name)
		assert.Equal(t, c.equal, Equal([]byte(c.other), []byte(contentV1)), c.name)
	}
	one := `{"spec":{"containers":[{"name":"p","resources":{"limits":{"cpu":"1"}}}]}}`
	other := `{"spec":{"containers":[{"name":"p","resources":{"limits":{"cpu":"1000m"}}}]}}`
	assert.True(t, Equal([]byte(one), []byte(other)), "quantities compare by value")
}

func TestSpec6_ContentOfEitherFormIsOneRevision(t *testing.T) {
	s := set("proxy:v1")
	s.Spec.InitContainers, s.Spec.ImagePullSecrets = []v1alpha1.SidecarContainer{}, []corev1.LocalObjectReference{}
	data, err := Content(&s.Spec)
	require.NoError(t, err)
	assert.Equal(t, contentV1, string(data), "an empty list is not set")
	for form, stored := range map[string]string{"brief": briefV1, "whole": contentV1} {
		before := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "stored"}, Data: runtime.RawExtension{Raw: []byte(stored)}}
		assert.Same(t, before, Find([]*appsv1.ControllerRevision{before}, data), form)
	}
	name, err := Name(s)
	require.NoError(t, err)
	assert.Equal(t, "mesh-86889db6bc", name, "the name that earlier releases give")
}

func TestSpec6_NameDependsOnContentAndCollisions(t *testing.T) {
	name := func(image string, collisions *int32) string {
		s := set(image)
		s.Status.CollisionCount = collisions
		got, err := Name(s)
		require.NoError(t, err)
		assert.Regexp(t, `^mesh-[a-z0-9]+$`, got)
		return got
	}
	first := name("proxy:v1", nil)
	assert.Equal(t, first, name("proxy:v1", nil))
	assert.NotEqual(t, first, name("proxy:v2", nil))
	assert.NotEqual(t, first, name("proxy:v1", new(int32(1))))
	assert.NotEqual(t, name("proxy:v1", new(int32(2))), name("proxy:v1", new(int32(1))))
}

func TestSpec6_NewRevisionIsLabelledOwnedAndCarriesTheHashes(t *testing.T) {
	s := set("proxy:v1")
	name, err := Name(s)
	require.NoError(t, err)
	got, err := New(s, "kruise-system", 3)
	require.NoError(t, err)
	assert.Equal(t, &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "kruise-system",
			Labels:      map[string]string{v1alpha1.SidecarSetNameLabel: "mesh", v1alpha1.CustomVersionLabel: "7"},
			Annotations: map[string]string{v1alpha1.HashAnnotation: "h", v1alpha1.HashWithoutImageAnnotation: "w"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps.kruise.io/v1alpha1", Kind: "SidecarSet", Name: "mesh", UID: "set-uid", Controller: new(true),
			}},
		},
		Data:     runtime.RawExtension{Raw: []byte(contentV1)},
		Revision: 3,
	}, got)

	again := got.DeepCopy()
	MakeLatest(again, s, 3)
	assert.Equal(t, got, again, "doing so twice changes nothing")
	delete(s.Labels, v1alpha1.CustomVersionLabel)
	MakeLatest(again, s, 3)
	assert.Equal(t, got, again, "a pinned custom version stays")
}
