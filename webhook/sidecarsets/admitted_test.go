package sidecarsets

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

// oldCache contains the generation before an edit, until its third read.
type oldCache struct {
	client.Reader
	edited *v1alpha1.SidecarSet
	reads  int
}

func (c *oldCache) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	c.reads++
	set := object.(*v1alpha1.SidecarSet)
	c.edited.DeepCopyInto(set)
	if c.reads < 3 {
		set.Generation--
	}
	return nil
}

// awaitCached compares generations, not hashes, because a wider selector changes the conflicts of a
// SidecarSet, but not its hash.
func TestValidationWaitsForTheGenerationOfTheLastAdmittedSidecarSet(t *testing.T) {
	edited := fixture.SidecarSet("s", fixture.Sidecar("side"))
	edited.UID, edited.Generation = "first", 2
	cache := &oldCache{edited: edited}
	var admitted admittedSet
	admitted.remember(edited)
	admitted.awaitCached(t.Context(), cache)
	assert.Equal(t, 3, cache.reads, "reads until the cache contains the generation")
	admitted.awaitCached(t.Context(), cache)
	assert.Equal(t, 3, cache.reads, "a SidecarSet is awaited once")
}
