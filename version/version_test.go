package version

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestAVersionIsReadFromTheBuild(t *testing.T) {
	build := &debug.BuildInfo{
		GoVersion: "go1.26.8",
		Main:      debug.Module{Version: "v0.2.0-0.20261122000000-0123456789ab+dirty"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-11-22T00:00:00Z"}, {Key: "vcs.modified", Value: "true"},
		},
		Deps: []*debug.Module{
			{Path: "k8s.io/client-go", Version: "v0.36.3"},
			{Path: "go.temporal.io/sdk", Version: "v1.38.0", Replace: &debug.Module{Path: "../sdk"}},
		},
	}
	var out bytes.Buffer
	require.NoError(t, Of(build, "").Write(&out))
	assert.Equal(t, `Version:           v0.2.0-0.20261122000000-0123456789ab+dirty
Commit:            0123456789abcdef of 2026-11-22T00:00:00Z, modified
Go:                go1.26.8
Platform:          `+runtime.GOOS+"/"+runtime.GOARCH+`
Kubernetes client: v0.36.3
Temporal SDK:      ../sdk
`, out.String())
	assert.Equal(t, "v0.2.0", Of(build, "v0.2.0").Version)

	out.Reset()
	require.NoError(t, Of(nil, "").Write(&out))
	assert.Contains(t, out.String(), "Version:           (devel)\nCommit:            unknown\nGo:                "+runtime.Version()+"\n")
}

func TestFormats(t *testing.T) {
	run := func(args ...string) (Info, string, error) {
		var out bytes.Buffer
		cmd := NewCommand()
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(args)
		err := cmd.Execute()
		var info Info
		if len(args) > 0 && err == nil {
			require.NoError(t, yaml.UnmarshalStrict(out.Bytes(), &info)) // JSON is YAML
		}
		return info, out.String(), err
	}
	want := Of(nil, "")
	for _, format := range []string{"json", "yaml"} {
		info, text, err := run("-o", format)
		require.NoError(t, err)
		assert.Equal(t, want.Platform, info.Platform)
		assert.Equal(t, want.GoVersion, info.GoVersion)
		assert.Equal(t, format == "json", json.Valid([]byte(text)), text)
	}
	_, text, err := run()
	require.NoError(t, err)
	assert.Contains(t, text, "Platform: ")
	_, _, err = run("-o", "xml")
	require.ErrorContains(t, err, `--output "xml": use json, yaml`)
	_, _, err = run("now")
	require.Error(t, err)
}

// The linker ignores a variable that does not exist, so only a build shows that the name in -ldflags is
// correct.
func TestAReleaseIsNamedByTheLinker(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "run", "-ldflags", "-X github.com/outrigger/outrigger/version.version=v9.8.7",
		"./testdata/program", "--output=json").Output()
	require.NoError(t, err)
	var info Info
	require.NoError(t, json.Unmarshal(out, &info))
	assert.Equal(t, "v9.8.7", info.Version)
}
