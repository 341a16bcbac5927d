// Package version reports the build information of a program.
package version

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/output"
)

// version is set by the linker in releases:
// -ldflags '-X github.com/outrigger/outrigger/version.version=v0.2.0'.
var version string

// Unknown is the version of a program without a release version and without a version in the build
// information.
const Unknown = "(devel)"

// Info is the build information of a program. Optional fields are empty if the build information lacks the
// value.
type Info struct {
	Version string `json:"version"`
	// Commit is the revision of the source. CommitTime is the time of the commit in RFC 3339.
	Commit     string `json:"commit,omitempty"`
	CommitTime string `json:"commitTime,omitempty"`
	// Modified is true if the source had changes that are not in the commit.
	Modified         bool   `json:"modified,omitempty"`
	GoVersion        string `json:"goVersion"`
	Platform         string `json:"platform"`
	KubernetesClient string `json:"kubernetesClient,omitempty"`
	TemporalSDK      string `json:"temporalSDK,omitempty"`
}

// Of returns the build information of a program. build may be nil. If release is not empty, release overrides
// the version in build.
func Of(build *debug.BuildInfo, release string) Info {
	if build == nil {
		build = &debug.BuildInfo{}
	}
	info := Info{
		Version:   cmp.Or(release, build.Main.Version, Unknown),
		GoVersion: cmp.Or(build.GoVersion, runtime.Version()),
		Platform:  runtime.GOOS + "/" + runtime.GOARCH,
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			info.Commit = setting.Value
		case "vcs.time":
			info.CommitTime = setting.Value
		case "vcs.modified":
			info.Modified = setting.Value == "true"
		}
	}
	for _, module := range build.Deps {
		if module.Replace != nil {
			module = &debug.Module{Path: module.Path, Version: cmp.Or(module.Replace.Version, module.Replace.Path)}
		}
		switch module.Path {
		case "k8s.io/client-go":
			info.KubernetesClient = module.Version
		case "go.temporal.io/sdk":
			info.TemporalSDK = module.Version
		}
	}
	return info
}

// Write prints the build information as text.
func (i Info) Write(out io.Writer) error {
	commit := i.Commit
	if i.CommitTime != "" {
		commit += " of " + i.CommitTime
	}
	if i.Modified {
		commit += ", modified"
	}
	var text strings.Builder
	for _, line := range []struct{ name, value string }{
		{"Version", i.Version}, {"Commit", commit}, {"Go", i.GoVersion}, {"Platform", i.Platform},
		{"Kubernetes client", i.KubernetesClient}, {"Temporal SDK", i.TemporalSDK},
	} {
		fmt.Fprintf(&text, "%-19s%s\n", line.name+":", cmp.Or(line.value, "unknown"))
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// NewCommand returns the command `version` of the running program.
func NewCommand() *cobra.Command {
	var o output.Flag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show what this program was built from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			build, _ := debug.ReadBuildInfo()
			info := Of(build, version)
			if o.Structured() {
				return o.Write(cmd.OutOrStdout(), info)
			}
			return info.Write(cmd.OutOrStdout())
		},
	}
	o.Add(cmd, output.JSON, output.YAML)
	return cmd
}
