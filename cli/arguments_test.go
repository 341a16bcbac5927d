package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestAMissingArgumentIsNamedWithTheUsage(t *testing.T) {
	s := newTestCluster(t)
	for line, want := range map[string]string{
		"status":                  "status: name a SidecarSet (kubectl sidecarset status NAME)",
		"history":                 "history: name a SidecarSet (kubectl sidecarset history NAME)",
		"undo":                    "undo: name a SidecarSet (kubectl sidecarset undo NAME)",
		"open":                    "open: name a SidecarSet (kubectl sidecarset open NAME)",
		"diff":                    "diff: name a SidecarSet (kubectl sidecarset diff NAME REVISION [REVISION])",
		"diff logs":               "diff: name a revision (kubectl sidecarset diff NAME REVISION [REVISION])",
		"diff logs 1 2 3":         `diff: "3" is one argument too many (kubectl sidecarset diff NAME REVISION [REVISION])`,
		"why":                     "why: name a pod or a SidecarSet (kubectl sidecarset why (POD | NAMESPACE/POD | SET | pod/NAME | sidecarset/NAME))",
		"pause":                   "pause: name a SidecarSet (kubectl sidecarset pause (NAME | --all) [--reason TEXT])",
		"pause logs --all":        `pause: "logs" is one argument too many (kubectl sidecarset pause (NAME | --all) [--reason TEXT])`,
		"resume":                  "resume: name a SidecarSet (kubectl sidecarset resume (NAME | --all) [--reason TEXT])",
		"approve":                 "approve: name a SidecarSet (kubectl sidecarset approve NAME)",
		"promote a b":             `promote: "b" is one argument too many (kubectl sidecarset promote NAME)`,
		"plan a b":                `plan: "b" is one argument too many (kubectl sidecarset plan (-f FILE | NAME [--image CONTAINER=IMAGE]...))`,
		"list logs":               `list: "logs" is one argument too many (kubectl sidecarset list)`,
		"check x":                 `check: "x" is one argument too many (kubectl sidecarset check)`,
		"version x":               `version: "x" is one argument too many (kubectl sidecarset version)`,
		"options x":               `options: "x" is one argument too many (kubectl sidecarset options)`,
		"get a b":                 `get: "b" is one argument too many (kubectl sidecarset get [NAME])`,
		"set images logs":         `kubectl sidecarset set has no command "images" (did you mean image? see kubectl sidecarset set --help)`,
		"set image":               "set image: name a SidecarSet (kubectl sidecarset set image NAME CONTAINER=IMAGE...)",
		"set image agent=a:v2":    `set image: name a SidecarSet before "agent=a:v2" (kubectl sidecarset set image NAME CONTAINER=IMAGE...)`,
		"set image logs":          "set image: name a container and its image (kubectl sidecarset set image NAME CONTAINER=IMAGE...)",
		"set image a b=c -n shop": "remove --namespace: set image is about the pods of the SidecarSet in all namespaces",
	} {
		assert.EqualError(t, s.run(strings.Fields(line)...).err, want, line)
	}
}

func TestOptionsListsTheFlagsThatHelpLeavesOut(t *testing.T) {
	s := newTestCluster(t)
	options := s.shows("options")
	root := NewCommand(genericiooptions.NewTestIOStreamsDiscard())
	for _, flag := range []string{"namespace", "kubeconfig", "context", "temporal-address", "temporal-payload-key-dir", "system-namespace"} {
		require.NotNil(t, root.PersistentFlags().Lookup(flag))
		assert.Contains(t, options, "--"+flag)
		for _, help := range [][]string{{"--help"}, {"status", "--help"}, {"set", "image", "--help"}} {
			assert.NotContains(t, s.shows(help...), "--"+flag, "%v", help)
		}
	}
	help := s.shows("status", "--help")
	assert.Contains(t, help, "--fail-on-degraded")
	assert.True(t, strings.HasSuffix(help, "\nUse \"kubectl sidecarset options\" for the flags of every command.\n"), help)
	assert.Contains(t, s.shows("__complete", "status", "--temporal-a"), "--temporal-address", "completion still knows them")
}

func TestGetIsListAndStatus(t *testing.T) {
	s := newTestCluster(t, sidecarSet(t, "logs"))
	assert.Equal(t, s.shows("list"), s.shows("get"))
	assert.Equal(t, s.shows("list", "-o", "wide"), s.shows("ls", "-o", "wide"))
	assert.Equal(t, s.shows("list", "-o", "wide"), s.shows("get", "-o", "wide"))
	assert.Equal(t, withoutKeyDirectory(s.shows("status", "logs", "-o", "yaml")), withoutKeyDirectory(s.shows("get", "sidecarset/logs", "-o", "yaml")))
	require.EqualError(t, s.run("get", "logs", "--missing").err, "get NAME is status, which has no flag --missing: leave out NAME or the flag")
	require.EqualError(t, s.run("get", "--timeout=1s").err, "get without NAME is list, which has no flag --timeout: name a SidecarSet, or leave out the flag")
	require.EqualError(t, s.run("get", "logs", "-n", "shop").err, "remove --namespace: status is about the pods of the SidecarSet in all namespaces")
	require.EqualError(t, s.run("get", "-o", "table").err, `--output "table": use wide, json, yaml`)
}

// withoutKeyDirectory removes the lines about the directory of payload keys, because the directory differs
// between runs of the test.
func withoutKeyDirectory(out string) string {
	lines := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool { return strings.Contains(line, "/none") })
	return strings.Join(lines, "\n")
}
