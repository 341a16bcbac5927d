package record

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSpec2_HashEntriesRoundTrip(t *testing.T) {
	value := `{"a":{"updateTimestamp":"2024-01-02T03:04:05Z","hash":"h","sidecarSetName":"a","sidecarList":["x","y"],"controllerRevision":"a-1"},` +
		`"b":{"updateTimestamp":"2024-01-02T03:04:05Z","hash":"g","sidecarSetName":"b","sidecarList":[]}}`
	entries, err := Hashes(map[string]string{v1alpha1.HashAnnotation: value})
	require.NoError(t, err)
	written, err := Format(entries)
	require.NoError(t, err)
	assert.Equal(t, value, written)
}

func TestSpec2_OlderHashFormIsRead(t *testing.T) {
	read, err := Read(map[string]string{v1alpha1.HashWithoutImageAnnotation: `{"a":"h"}`})
	require.NoError(t, err)
	assert.Equal(t, Entries{"a": {Hash: "h"}}, read.HashesWithoutImage)
}

func TestSpec2_UpgradedPodsMayHaveBothForms(t *testing.T) {
	annotations := map[string]string{v1alpha1.HashAnnotation: `{"a":"h","b":"g"}`}
	value, err := With(annotations, v1alpha1.HashAnnotation, Entries{"b": {Hash: "new", SidecarSetName: "b", SidecarList: []string{}}})
	require.NoError(t, err)
	assert.Equal(t, `{"a":"h","b":{"updateTimestamp":null,"hash":"new","sidecarSetName":"b","sidecarList":[]}}`, value)
	entries, err := Hashes(map[string]string{v1alpha1.HashAnnotation: value})
	require.NoError(t, err)
	assert.Equal(t, Entries{"a": {Hash: "h"}, "b": {Hash: "new", SidecarSetName: "b", SidecarList: []string{}}}, entries)
}

func TestMalformedAnnotationsAreErrorsThatNameThem(t *testing.T) {
	for _, value := range []string{`[]`, `null`, `{"a":1}`, `{`, `"x"`} {
		_, err := Hashes(map[string]string{v1alpha1.HashAnnotation: value})
		require.ErrorContains(t, err, v1alpha1.HashAnnotation, value)
		_, err = InPlaceStates(map[string]string{v1alpha1.InPlaceUpdateStateAnnotation: value})
		require.ErrorContains(t, err, v1alpha1.InPlaceUpdateStateAnnotation, value)
	}
}

func TestSpec2_InPlaceStateRoundTrip(t *testing.T) {
	states := States{"a": {
		Revision: "h", UpdateTimestamp: metav1.NewTime(time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC)),
		LastContainerStatuses: map[string]ContainerStatus{"x": {ImageID: "sha256:1"}},
	}}
	value, err := Format(states)
	require.NoError(t, err)
	assert.JSONEq(t, `{"a":{"revision":"h","updateTimestamp":"2024-01-02T03:04:05Z","lastContainerStatuses":{"x":{"imageID":"sha256:1"}}}}`, value)
	read, err := InPlaceStates(map[string]string{v1alpha1.InPlaceUpdateStateAnnotation: value})
	require.NoError(t, err)
	assert.Equal(t, "sha256:1", read["a"].LastContainerStatuses["x"].ImageID)
}

func TestSpec2_InjectedListIsSortedAndUnique(t *testing.T) {
	annotations := map[string]string{v1alpha1.InjectedListAnnotation: FormatInjectedSets([]string{"b", "a", "b"})}
	assert.Equal(t, "a,b", annotations[v1alpha1.InjectedListAnnotation])
	assert.Equal(t, []string{"a", "b"}, InjectedSets(annotations))
	assert.True(t, Injected(annotations, "b"))
	assert.False(t, Injected(annotations, "ab"))
	assert.Nil(t, InjectedSets(nil))
}

// The index of pods by SidecarSet contains each name, and any author of a pod can write the list.
func TestSpec3_8_AHostileInjectedListIsCut(t *testing.T) {
	names := make([]string, 50_000)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	annotations := map[string]string{v1alpha1.InjectedListAnnotation: strings.Join(names, ",")}
	assert.Equal(t, names[:256], InjectedSets(annotations))
	assert.True(t, Injected(annotations, "n255"))
	assert.False(t, Injected(annotations, "n256"))
}
