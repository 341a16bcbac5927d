package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const validPolicy = `apiVersion: outrigger.io/v1alpha1
kind: RolloutPolicy
metadata: {name: canary}
spec:
  selector: {}
  steps: [{name: canary, upTo: 1}]
`

func TestASimulationRejectsWrongFlagsAndFiles(t *testing.T) {
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	valid := file(validPolicy)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"no file":           {[]string{"--sidecarset=logs"}, "no RolloutPolicy: name its file with --filename"},
		"no SidecarSet":     {[]string{"-f", valid}, "no SidecarSet: name it with --sidecarset"},
		"no restart time":   {[]string{"-f", valid, "--sidecarset=logs", "--cold-restart=0s"}, "--cold-restart 0s: use a positive duration such as 5s"},
		"negative approval": {[]string{"-f", valid, "--sidecarset=logs", "--approval-after=-1s"}, "--approval-after -1s: use a duration such as 4h, or 0s"},
		"negative failures": {[]string{"-f", valid, "--sidecarset=logs", "--fail=-1"}, "--fail -1: use a number of pods, or 0"},
		"no time":           {[]string{"-f", valid, "--sidecarset=logs", "--now=noon"}, `--now "noon": use a time such as 2026-11-27T12:00:00Z`},
		"another format":    {[]string{"-f", valid, "--sidecarset=logs", "-o", "xml"}, `--output "xml": use text, json, yaml`},
		"a missing file":    {[]string{"-f", "/absent.yaml", "--sidecarset=logs"}, "read the RolloutPolicy: open /absent.yaml: no such file or directory (correct --filename)"},
		"another kind":      {[]string{"-f", file("apiVersion: v1\nkind: Pod\n"), "--sidecarset=logs"}, `the document is not a RolloutPolicy of outrigger.io/v1alpha1, but kind "Pod" of "v1": use the file of a RolloutPolicy`},
		"several documents": {[]string{"-f", file(validPolicy + "---\n" + validPolicy), "--sidecarset=logs"}, "it has several documents: give one document per file"},
		"an unknown field":  {[]string{"-f", file(validPolicy + "  stepps: []\n"), "--sidecarset=logs"}, `unknown field "spec.stepps": correct the spelling (kubectl explain rolloutpolicy.spec)`},
		"a repeated field":  {[]string{"-f", file(validPolicy + "  steps: []\n"), "--sidecarset=logs"}, `key "steps" already set in map`},
		"no YAML":           {[]string{"-f", file("{"), "--sidecarset=logs"}, "read the RolloutPolicy in "},
		"no name":           {[]string{"-f", file("apiVersion: outrigger.io/v1alpha1\nkind: RolloutPolicy\nspec: {selector: {}}\n"), "--sidecarset=logs"}, "the RolloutPolicy has no metadata.name: add one"},
		"no cluster":        {[]string{"-f", valid, "--sidecarset=logs", "--kubeconfig=/absent"}, "find a cluster: "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runCommand(t, append([]string{"simulate", "policy"}, c.args...)...)
			require.ErrorContains(t, err, c.says)
		})
	}
}
