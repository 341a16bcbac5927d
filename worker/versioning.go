package worker

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	sdk "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/version"
)

// AutoUpgrade and Pinned are the behaviors of an open run when another build becomes current. With
// AutoUpgrade, the run continues on the new build. With Pinned, the run stays on the first build of the run.
const (
	AutoUpgrade = "auto-upgrade"
	Pinned      = "pinned"
)

// Versioning assigns a worker to a version of a Temporal worker deployment. The zero value means that the worker
// is not versioned.
type Versioning struct {
	// DeploymentName is the name that the workers of all versions share.
	DeploymentName string
	// BuildID identifies the version. Different builds must have different ids.
	BuildID string
	// Behavior is AutoUpgrade, the default, or Pinned.
	Behavior string
}

// Resolve validates the versioning, and returns a copy with defaults. The default of BuildID is the source
// revision, or otherwise the module version, in the build information. Without a DeploymentName, Resolve
// returns the zero value. Resolve fails for names that the server rejects, for an unknown Behavior, if an
// option needs a DeploymentName, or if the build information does not identify the build.
func (v Versioning) Resolve(build *debug.BuildInfo) (Versioning, error) {
	switch v.Behavior {
	case "", AutoUpgrade, Pinned:
	default:
		return v, fmt.Errorf("--versioning-behavior %q: use %s or %s", v.Behavior, AutoUpgrade, Pinned)
	}
	if v.DeploymentName == "" {
		if v.BuildID != "" || v.Behavior == Pinned {
			return v, errors.New("--build-id and --versioning-behavior need --deployment-name")
		}
		return Versioning{}, nil
	}
	if strings.ContainsAny(v.DeploymentName, ".:") || strings.HasPrefix(v.DeploymentName, "__") {
		return v, fmt.Errorf("--deployment-name %q: no dots, no colons, no two underscores at the beginning", v.DeploymentName)
	}
	if strings.HasPrefix(v.BuildID, "__") {
		return v, fmt.Errorf("--build-id %q: no two underscores at the beginning", v.BuildID)
	}
	if v.BuildID == "" {
		v.BuildID = buildID(build)
	}
	if v.BuildID == "" {
		return v, errors.New("this binary names no revision that it was built from: give a --build-id")
	}
	v.Behavior = cmp.Or(v.Behavior, AutoUpgrade)
	return v, nil
}

// buildID returns the source revision of a binary, or otherwise the version of the module. If the source had
// uncommitted changes, buildID returns an empty string, because different builds could have the same
// revision.
func buildID(build *debug.BuildInfo) string {
	info := version.Of(build, "")
	if info.Modified || info.Commit == "" && info.Version == version.Unknown {
		return ""
	}
	return cmp.Or(info.Commit, info.Version)
}

// options returns the options for the SDK.
func (v Versioning) options() sdk.DeploymentOptions {
	if v.DeploymentName == "" {
		return sdk.DeploymentOptions{}
	}
	behavior := workflow.VersioningBehaviorAutoUpgrade
	if v.Behavior == Pinned {
		behavior = workflow.VersioningBehaviorPinned
	}
	return sdk.DeploymentOptions{
		UseVersioning:             true,
		Version:                   sdk.WorkerDeploymentVersion{DeploymentName: v.DeploymentName, BuildID: v.BuildID},
		DefaultVersioningBehavior: behavior,
	}
}
