package sidecarsets

import (
	"fmt"
	"strconv"
	"strings"
)

const patchPodMetadataGate = "SidecarSetPatchPodMetadataDefaultsAllowed"

// FeatureGates is the value of a flag with a list of <gate>=<bool>, separated by commas.
type FeatureGates struct {
	// PatchPodMetadataDefaultsAllowed allows SidecarSets to patch every annotation of
	// pods, regardless of the whitelist (SPEC §2).
	PatchPodMetadataDefaultsAllowed bool
}

// Set parses the flag.
func (g *FeatureGates) Set(text string) error {
	for setting := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(setting) == "" {
			continue
		}
		name, value, _ := strings.Cut(setting, "=")
		if strings.TrimSpace(name) != patchPodMetadataGate {
			return fmt.Errorf("unknown feature gate %q: there is %s", strings.TrimSpace(name), patchPodMetadataGate)
		}
		on, err := strconv.ParseBool(strings.TrimSpace(value))
		if err != nil {
			return fmt.Errorf("feature gate %s: write %s=true or =false", patchPodMetadataGate, patchPodMetadataGate)
		}
		g.PatchPodMetadataDefaultsAllowed = on
	}
	return nil
}

// String returns the default of the flag for the help.
func (g *FeatureGates) String() string {
	return fmt.Sprintf("%s=%t", patchPodMetadataGate, g.PatchPodMetadataDefaultsAllowed)
}

// Type returns the name of the flag's value for the help.
func (g *FeatureGates) Type() string { return "gates" }
