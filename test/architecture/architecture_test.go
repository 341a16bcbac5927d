// Package architecture tests the imports of packages, and the paths in documents.
package architecture

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/outrigger/outrigger"

type listed struct {
	ImportPath    string
	Imports, Deps []string
	Standard      bool
}

// packages returns the packages of the module, without test files.
func packages(t *testing.T) map[string]listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps,Standard", module+"/...").Output()
	require.NoError(t, err)
	all := map[string]listed{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var one listed
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			require.NotEmpty(t, all)
			return all
		}
		require.NoError(t, err)
		all[strings.TrimPrefix(one.ImportPath, module+"/")] = one
	}
}

func under(path string, prefixes ...string) bool {
	for _, prefix := range prefixes {
		if path == prefix || strings.HasPrefix(path, prefix+"/") {
			return true
		}
	}
	return false
}

// The packages of each directory import only the packages that are listed for the directory.
func TestAllowedImports(t *testing.T) {
	types := []string{"k8s.io/api", "k8s.io/apimachinery", module + "/api"}
	only := map[string][]string{
		"api": types,
		// Packages that make decisions import no client, logger, clock, randomness or Temporal.
		"internal": append(types, module+"/internal"),
		// A run records the measurements of gates with internal/gate and evictions with internal/eviction. A
		// rollout across many clusters makes decisions with internal/fleet. A change of the results of these
		// packages changes runs, and needs a version marker.
		"workflows": {"go.temporal.io/sdk", "go.temporal.io/api/enums", module + "/api/protocol", module + "/api/outrigger", module + "/internal/gate", module + "/internal/eviction", module + "/internal/fleet"},
		// The package that formats the output of the plugin also has no side effects.
		"cli/view": append(types, module+"/internal", module+"/cli/view"),
	}
	effects := []string{"math/rand", "math/rand/v2", "net/http", "os", "log", "log/slog"}
	for path, one := range packages(t) {
		for folder, allowed := range only {
			if !under(path, folder) {
				continue
			}
			switch path {
			case "internal/stage":
				allowed = append(slices.Clone(allowed), "github.com/robfig/cron/v3") // no side effects
			case "internal/gate":
				allowed = append(slices.Clone(allowed), "github.com/google/cel-go") // no side effects
			}
			for _, imported := range one.Imports {
				standard := !strings.Contains(imported, ".")
				require.True(t, standard || under(imported, allowed...), "%s imports %s", path, imported)
				require.NotContains(t, effects, imported, path)
			}
		}
	}
}

// The reconcilers of the operator call Temporal only through operator/runs.
func TestReconcilesDoNotImportTemporal(t *testing.T) {
	for _, imported := range packages(t)["operator"].Imports {
		require.False(t, under(imported, "go.temporal.io"), imported)
	}
}

// The packages of each directory must not import the packages that are listed for the directory, directly or
// indirectly.
func TestForbiddenImports(t *testing.T) {
	processes := []string{module + "/operator", module + "/webhook", module + "/worker"}
	programs := []string{module + "/dev", module + "/cmd"}
	forbidden := map[string][][]string{
		"api":        {{"sigs.k8s.io/controller-runtime", "go.temporal.io"}},
		"workflows":  {{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"}},
		"activities": {{module + "/workflows"}, processes, programs},
		"operator":   {{module + "/workflows", module + "/activities"}, processes[1:], programs},
		// operator/runs starts, signals and describes runs. The package operator decides about runs.
		"operator/runs":     {{module + "/internal", module + "/kube"}},
		"operator/storage":  {{"go.temporal.io", module + "/temporal", module + "/operator/runs"}},
		"operator/policies": {{"go.temporal.io", module + "/temporal", module + "/operator/runs"}},
		"webhook":           {{"go.temporal.io", module + "/temporal", module + "/workflows", module + "/activities", module + "/operator", module + "/worker"}, programs},
		"worker":            {processes[:2], programs},
		"kube":              {{"go.temporal.io", module + "/workflows", module + "/activities"}, processes, programs},
		// The packages in kube do not import kube.
		"kube/crd":     {{module + "/kube"}},
		"kube/watches": {{module + "/kube"}},
		"temporal":     {{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"}, processes, programs},
		"tracing":      {{module + "/temporal", module + "/kube", "go.temporal.io", "k8s.io"}, processes, programs},
		"cli":          {{module + "/workflows", module + "/activities"}, processes, programs},
		"ui":           {{module + "/workflows", module + "/activities"}, processes, programs},
		"cmd":          {{module + "/dev"}},
		// The plugin runs outside the cluster.
		"cmd/kubectl-sidecarset": {{module + "/workflows", module + "/activities"}, processes},
		// The packages of dev run the roles as child processes.
		"dev": {processes},
		// The observer must not depend on the roles, and must not share code with the roles.
		"dev/observer": {{module + "/internal", module + "/kube", module + "/api/protocol", module + "/workflows", module + "/activities"}, processes},
	}
	for path, one := range packages(t) {
		for folder, lists := range forbidden {
			if !under(path, folder) {
				continue
			}
			for _, dependency := range one.Deps {
				require.False(t, under(dependency, slices.Concat(lists...)...), "%s depends on %s", path, dependency)
			}
		}
	}
}
