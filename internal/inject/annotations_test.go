package inject

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/record"
)

func TestSpec4_10_EntriesOfOtherSetsAreKept(t *testing.T) {
	pod := fixture.Pod(fixture.Container("app"))
	pod.Annotations = map[string]string{
		"mine":                          "kept",
		v1alpha1.InjectedListAnnotation: "other",
		v1alpha1.HashAnnotation:         `{"other":{"updateTimestamp":"2023-01-01T00:00:00Z","hash":"h","sidecarSetName":"other","sidecarList":["o"]}}`,
		// The entry has the older format, which is only a hash.
		v1alpha1.HashWithoutImageAnnotation: `{"other":"g"}`,
	}
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	injected := injectInto(t, pod, set)
	assert.Equal(t, map[string]string{
		"mine":                          "kept",
		v1alpha1.InjectedListAnnotation: "other,s",
		v1alpha1.HashAnnotation: `{"other":{"updateTimestamp":"2023-01-01T00:00:00Z","hash":"h","sidecarSetName":"other","sidecarList":["o"]},` +
			`"s":{"updateTimestamp":"2024-01-02T12:00:00Z","hash":"` + set.Annotations[v1alpha1.HashAnnotation] + `","sidecarSetName":"s","sidecarList":["side"],"controllerRevision":"s-rev"}}`,
		v1alpha1.HashWithoutImageAnnotation: `{"other":"g",` +
			`"s":{"updateTimestamp":"2024-01-02T12:00:00Z","hash":"` + set.Annotations[v1alpha1.HashWithoutImageAnnotation] + `","sidecarSetName":"s","sidecarList":["side"]}}`,
	}, injected.Annotations)
}

// The pod template has a list longer than record.MaxInjectedSets, whose names sort before the name of the
// SidecarSet.
func TestSpec4_10_AnInjectedSidecarSetIsAmongTheNamesThatAreRead(t *testing.T) {
	names := make([]string, 300)
	for i := range names {
		names[i] = fmt.Sprintf("a%03d", i)
	}
	pod := fixture.Pod(fixture.Container("app"))
	pod.Annotations = map[string]string{v1alpha1.InjectedListAnnotation: strings.Join(names, ",")}
	injected := injectInto(t, pod, fixture.SidecarSet("mesh", fixture.Sidecar("side")))
	assert.Len(t, record.InjectedSets(injected.Annotations), record.MaxInjectedSets)
	assert.True(t, record.Injected(injected.Annotations, "mesh"))
}

func TestSpec4_10_RecordsOfUpgradesOfAnotherPodAreRemoved(t *testing.T) {
	pod := fixture.Pod(fixture.Container("app"))
	pod.Annotations = map[string]string{
		v1alpha1.InPlaceUpdateStateAnnotation: `{"other":{"revision":"o"},"s":{"revision":"h"}}`,
		v1alpha1.UnavailableSinceAnnotation:   `{"s":"2023-01-01T00:00:00Z"}`,
		v1alpha1.ResizeAnnotation:             `damaged`,
	}
	injected := injectInto(t, pod, fixture.SidecarSet("s", fixture.Sidecar("side")))
	assert.JSONEq(t, `{"other":{"revision":"o"}}`, injected.Annotations[v1alpha1.InPlaceUpdateStateAnnotation])
	assert.JSONEq(t, `{}`, injected.Annotations[v1alpha1.UnavailableSinceAnnotation])
	assert.Equal(t, "damaged", injected.Annotations[v1alpha1.ResizeAnnotation])
}
