package worker

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

func TestVersioningIsResolved(t *testing.T) {
	released := &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0"}}
	cloned := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}}
	changed := &debug.BuildInfo{Main: debug.Module{Version: "v0.2.0+dirty"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}}
	unknown := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}
	for name, c := range map[string]struct {
		given    Versioning
		build    *debug.BuildInfo
		resolved Versioning
		err      string
	}{
		"none":                          {Versioning{Behavior: AutoUpgrade}, cloned, Versioning{}, ""},
		"of the revision":               {Versioning{DeploymentName: "d"}, cloned, Versioning{"d", "abc", AutoUpgrade}, ""},
		"of the module":                 {Versioning{DeploymentName: "d"}, released, Versioning{"d", "v0.2.0", AutoUpgrade}, ""},
		"given":                         {Versioning{"d", "b", Pinned}, cloned, Versioning{"d", "b", Pinned}, ""},
		"given for a changed tree":      {Versioning{DeploymentName: "d", BuildID: "b"}, changed, Versioning{"d", "b", AutoUpgrade}, ""},
		"of a changed tree":             {Versioning{DeploymentName: "d"}, changed, Versioning{}, "give a --build-id"},
		"of no revision and no version": {Versioning{DeploymentName: "d"}, unknown, Versioning{}, "give a --build-id"},
		"without build information":     {Versioning{DeploymentName: "d"}, nil, Versioning{}, "give a --build-id"},
		"build without a deployment":    {Versioning{BuildID: "b", Behavior: AutoUpgrade}, cloned, Versioning{}, "need --deployment-name"},
		"behavior without a deployment": {Versioning{Behavior: Pinned}, cloned, Versioning{}, "need --deployment-name"},
		"unknown behavior":              {Versioning{"d", "b", "float"}, cloned, Versioning{}, "use auto-upgrade or pinned"},
		"a name with a dot":             {Versioning{DeploymentName: "a.b"}, cloned, Versioning{}, "no dots"},
		"a name with a colon":           {Versioning{DeploymentName: "a:b"}, cloned, Versioning{}, "no dots, no colons"},
		"a name of the server's own":    {Versioning{DeploymentName: "__a"}, cloned, Versioning{}, "no two underscores"},
		"a build of the server's own":   {Versioning{DeploymentName: "a", BuildID: "__b"}, cloned, Versioning{}, "no two underscores"},
	} {
		t.Run(name, func(t *testing.T) {
			resolved, err := c.given.Resolve(c.build)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.resolved, resolved)
		})
	}
}

func TestVersioningIsTheSDKs(t *testing.T) {
	assert.Equal(t, sdk.DeploymentOptions{}, Versioning{}.options())
	options := Versioning{"d", "b", AutoUpgrade}.options()
	assert.Equal(t, sdk.DeploymentOptions{
		UseVersioning: true, Version: sdk.WorkerDeploymentVersion{DeploymentName: "d", BuildID: "b"}, DefaultVersioningBehavior: workflow.VersioningBehaviorAutoUpgrade,
	}, options)
	assert.Equal(t, workflow.VersioningBehaviorPinned, Versioning{"d", "b", Pinned}.options().DefaultVersioningBehavior)
}
