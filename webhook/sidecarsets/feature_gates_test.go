package sidecarsets

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFeatureGates(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "SidecarSetPatchPodMetadataDefaultsAllowed=true": true, "SidecarSetPatchPodMetadataDefaultsAllowed=false": false,
		" SidecarSetPatchPodMetadataDefaultsAllowed = true ,": true,
	} {
		var gates FeatureGates
		require.NoError(t, gates.Set(text), text)
		assert.Equal(t, FeatureGates{PatchPodMetadataDefaultsAllowed: want}, gates, text)
	}
	for _, text := range []string{"Other=true", "SidecarSetPatchPodMetadataDefaultsAllowed", "SidecarSetPatchPodMetadataDefaultsAllowed=maybe", "sidecarsetpatchpodmetadatadefaultsallowed=true"} {
		var gates FeatureGates
		assert.ErrorContains(t, gates.Set(text), patchPodMetadataGate, text)
		assert.Zero(t, gates)
	}
}
