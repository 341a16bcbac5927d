package view

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// The operator does not observe the generation of a deletion. A finalizer may keep the SidecarSet for a long time.
func TestASidecarSetThatIsBeingDeletedIsTerminating(t *testing.T) {
	const finalizers = "kubectl get sidecarset logs -o jsonpath='{.metadata.finalizers}'"
	in := input(t)
	deleted := ago(0)
	in.Set.DeletionTimestamp, in.Set.Generation = &deleted, 3
	r := newRollout(t, in)
	assert.Equal(t, "Terminating", r.Headline)
	assert.Equal(t, []string{"see its finalizers: " + finalizers}, r.next(noon))
	assert.NotContains(t, r.Text(Style{}), "not observed")
	assert.NotContains(t, r.Line(), "not observed")
	done, err := r.Done()
	assert.True(t, done)
	require.EqualError(t, err, "SidecarSet logs is being deleted, so that its rollout does not continue; see its finalizers: "+finalizers)
	assert.False(t, r.RunEnds())
	assert.Equal(t, "the SidecarSet is being deleted (see its finalizers: "+finalizers+")", newWhy(t, in).Reasons[0])
	summary := NewSummaries(&ListInput{Sets: []v1alpha1.SidecarSet{*in.Set}, Now: noon})[0]
	assert.Equal(t, "Terminating", summary.Headline)
	assert.NotContains(t, summary.Attention, notObserved)
	assert.Equal(t, Busy, headlineTone(summary.Headline))
}
