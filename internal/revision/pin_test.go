package revision

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func pinned(pin v1alpha1.SidecarSetInjectRevision) *v1alpha1.SidecarSet {
	pinned := set("proxy:v9")
	pinned.Spec.InjectionStrategy.Revision = &pin
	return pinned
}

func TestSpec4_11_ThePinnedRevisionIsFound(t *testing.T) {
	sorted := []*appsv1.ControllerRevision{recorded(1, "a"), recorded(2, "a"), recorded(3, "b")}
	for _, c := range []struct {
		name, want string
		pin        v1alpha1.SidecarSetInjectRevision
	}{
		{"by name", "r1", v1alpha1.SidecarSetInjectRevision{RevisionName: new("r1")}},
		{"the newest with the version", "r2", v1alpha1.SidecarSetInjectRevision{CustomVersion: new("a")}},
		{"the name counts more", "r1", v1alpha1.SidecarSetInjectRevision{RevisionName: new("r1"), CustomVersion: new("b")}},
		{"an empty name is none", "r3", v1alpha1.SidecarSetInjectRevision{RevisionName: new(""), CustomVersion: new("b")}},
	} {
		found, err := FindPinned(pinned(c.pin), sorted)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, found.Name, c.name)
	}
}

func TestSpec4_11_AMissingRevisionIsAnErrorThatNamesIt(t *testing.T) {
	unlabelled := []*appsv1.ControllerRevision{recorded(1, "")}
	for want, pin := range map[string]v1alpha1.SidecarSetInjectRevision{
		"revision gone": {RevisionName: new("gone")}, `custom version "9"`: {CustomVersion: new("9")}, `custom version ""`: {},
	} {
		_, err := FindPinned(pinned(pin), unlabelled)
		require.ErrorIs(t, err, ErrNoSuchRevision)
		require.ErrorContains(t, err, "SidecarSet mesh: inject "+want)
	}
	_, err := FindPinned(set("proxy:v9"), unlabelled)
	require.ErrorIs(t, err, ErrNoSuchRevision)
}

func TestSpec6_RelabellingASetLosesNoCustomVersion(t *testing.T) {
	s := set("proxy:v1")
	kept, err := New(s, "kruise-system", 1)
	require.NoError(t, err)
	sorted := []*appsv1.ControllerRevision{kept}
	s.Labels[v1alpha1.CustomVersionLabel] = "8"
	s.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{CustomVersion: new("8")}
	found, err := FindPinned(s, sorted)
	require.NoError(t, err, "a version that the revision is about to get")
	assert.Same(t, kept, found)
	for _, version := range []string{"8", "9", "7", "9"} {
		s.Labels[v1alpha1.CustomVersionLabel] = version
		MakeLatest(kept, s, 1)
	}
	assert.Equal(t, "9", kept.Labels[v1alpha1.CustomVersionLabel], "tools select revisions by label")
	assert.Equal(t, "8,7", kept.Annotations[v1alpha1.CustomVersionsAnnotation])
	assert.Equal(t, []string{"8", "7", "9"}, CustomVersions(kept))

	s.Spec.Containers[0].Image = "proxy:v2"
	s.Labels[v1alpha1.CustomVersionLabel] = "10"
	newest, err := New(s, "kruise-system", 2)
	require.NoError(t, err)
	sorted = append(sorted, newest)
	for version, want := range map[string]*appsv1.ControllerRevision{"7": kept, "8": kept, "9": kept, "10": newest} {
		s.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{CustomVersion: &version}
		found, err := FindPinned(s, sorted)
		require.NoError(t, err, version)
		assert.Same(t, want, found, version)
		s.Spec.RevisionHistoryLimit = new(int32(1))
		assert.NotContains(t, Expendable(s, sorted, newest.Name, nil), want, "nor the revision of a version")
	}
}

// The image of a SidecarSet changes before its label. The revision of the new image temporarily has the label of
// the former version. A pin to the former version must not inject the new image.
func TestSpec6_4_APinToTheFormerVersionInjectsTheFormerContent(t *testing.T) {
	s := set("proxy:v1")
	s.Labels[v1alpha1.CustomVersionLabel] = "version-1"
	former, err := New(s, "kruise-system", 1)
	require.NoError(t, err)
	s.Spec.Containers[0].Image = "proxy:v2"
	newest, err := New(s, "kruise-system", 2)
	require.NoError(t, err)
	s.Labels[v1alpha1.CustomVersionLabel] = "version-2"
	MakeLatest(newest, s, 2)
	for version, want := range map[string]*appsv1.ControllerRevision{"version-1": former, "version-2": newest} {
		s.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{CustomVersion: &version}
		found, err := FindPinned(s, []*appsv1.ControllerRevision{former, newest})
		require.NoError(t, err)
		assert.Same(t, want, found, version)
		assert.Equal(t, version, found.Labels[v1alpha1.CustomVersionLabel])
	}
}

// Earlier releases kept the first custom version in the label.
func TestSpec6_4_RevisionsOfEarlierReleasesAreLabelledOnce(t *testing.T) {
	s := set("proxy:v1")
	s.Labels[v1alpha1.CustomVersionLabel] = "7"
	recorded, err := New(s, "kruise-system", 1)
	require.NoError(t, err)
	recorded.Annotations[v1alpha1.CustomVersionsAnnotation] = "8,9"
	s.Labels[v1alpha1.CustomVersionLabel] = "9"
	MakeLatest(recorded, s, 1)
	assert.Equal(t, []string{"8", "7", "9"}, CustomVersions(recorded))
	again := recorded.DeepCopy()
	MakeLatest(again, s, 1)
	assert.Equal(t, recorded, again)
}

func TestSpec6_RevisionsOfOthersAreNotTheSets(t *testing.T) {
	s := set("proxy:v1")
	owned := func(name, kind, owner string) appsv1.ControllerRevision {
		r := appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.SidecarSetNameLabel: "mesh"}}}
		if kind != "" {
			r.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: new(true)}}
		}
		return r
	}
	other := owned("other", "SidecarSet", "mesh")
	other.Labels[v1alpha1.SidecarSetNameLabel] = "else"
	assert.Equal(t, []string{"earlier", "orphan"}, names(Of(s, []appsv1.ControllerRevision{
		owned("orphan", "", ""), owned("earlier", "SidecarSet", "mesh"), owned("foreign", "StatefulSet", "mesh"), owned("renamed", "SidecarSet", "else"), other,
	})))
}

func TestStoredV1beta1SidecarSetsKeepTheirCustomVersion(t *testing.T) {
	set := &v1alpha1.SidecarSet{}
	assert.Empty(t, CustomVersion(set))
	set.Spec.CustomVersion = "one"
	updated := &appsv1.ControllerRevision{}
	MakeLatest(updated, set, 1)
	assert.Equal(t, "one", updated.Labels[v1alpha1.CustomVersionLabel])
	set.Labels = map[string]string{v1alpha1.CustomVersionLabel: "two"}
	assert.Equal(t, "two", CustomVersion(set), "an existing label wins")
}
