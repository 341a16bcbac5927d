package sidecarsets

import (
	"fmt"
	"strconv"
	"strings"
)

const patchPodMetadataGate = "SidecarSetPatchPodMetadataDefaultsAllowed"

// FeatureGates are the value of a flag such as <gate>=true,<gate>=false.
type FeatureGates struct {
	// PatchPodMetadataDefaultsAllowed lets SidecarSets patch every annotation
	// of pods, whatever the whitelist says (SPEC §2).
	PatchPodMetadataDefaultsAllowed bool
}

// Set reads the flag. An unknown gate is an error that names the known one.
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

// String is the flag's default in the help.
func (g *FeatureGates) String() string {
	return fmt.Sprintf("%s=%t", patchPodMetadataGate, g.PatchPodMetadataDefaultsAllowed)
}

// Type is how the help calls the flag's value.
func (g *FeatureGates) Type() string { return "gates" }
