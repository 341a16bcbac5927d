// Package architecture holds the arrows between the rooms: who may know whom.
package architecture

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
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

// packages of the module, without their tests.
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

func TestDecisionsKnowOnlyTypes(t *testing.T) {
	for path, one := range packages(t) {
		if !under(path, "internal") {
			continue
		}
		for _, imported := range one.Imports {
			pure := !strings.Contains(imported, ".") || // the standard library
				under(imported, "k8s.io/api", "k8s.io/apimachinery", module+"/api", module+"/internal")
			require.True(t, pure, "%s imports %s", path, imported)
			require.NotContains(t, []string{"math/rand", "math/rand/v2", "net/http", "os", "log", "log/slog"}, imported, path)
		}
	}
}

func TestArrows(t *testing.T) {
	never := map[string][]string{
		"api":                    {module + "/internal", "sigs.k8s.io/controller-runtime", "go.temporal.io"},
		"workflows":              {module + "/activities", module + "/operator", module + "/webhook", module + "/kube", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
		"activities":             {module + "/workflows", module + "/operator", module + "/webhook", module + "/worker"},
		"operator":               {module + "/workflows", module + "/activities", module + "/webhook", module + "/worker"},
		"webhook":                {"go.temporal.io", module + "/temporal", module + "/workflows", module + "/activities", module + "/operator", module + "/worker"},
		"worker":                 {module + "/operator", module + "/webhook"},
		"kube":                   {module + "/operator", module + "/webhook", module + "/worker", "go.temporal.io"},
		"temporal":               {"k8s.io/client-go", "sigs.k8s.io/controller-runtime"},
		"cmd/kubectl-sidecarset": {module + "/workflows", module + "/activities"},
	}
	for path, one := range packages(t) {
		for room, strangers := range never {
			if !under(path, room) {
				continue
			}
			for _, dependency := range one.Deps {
				require.False(t, under(dependency, strangers...), "%s depends on %s", path, dependency)
			}
		}
	}
}
