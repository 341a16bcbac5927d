package manifests

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/cli"
)

// Each key must run a command of the plugin with existing flags.
func TestTheKeysOfK9sRunCommandsOfThePlugin(t *testing.T) {
	text, err := os.ReadFile("../../config/k9s/plugins.yaml")
	require.NoError(t, err)
	var keys struct {
		Plugins map[string]struct {
			ShortCut, Description, Command string
			Scopes, Args                   []string
			Confirm, Dangerous, Background bool
		}
	}
	require.NoError(t, yaml.UnmarshalStrict(text, &keys))
	taken := map[string]string{}
	for name, key := range keys.Plugins {
		require.NotEmpty(t, key.Description, name)
		for _, scope := range key.Scopes {
			assert.Empty(t, taken[scope+key.ShortCut], "%s has a key of its own", name)
			taken[scope+key.ShortCut] = name
		}
		assert.False(t, key.Background, "%s: a command in the background has no terminal", name)
		require.Equal(t, "sh", key.Command, name)
		require.Len(t, key.Args, 2, name)
		line, ofK9s := strings.CutPrefix(key.Args[1], `KUBECONFIG="$KUBECONFIG" kubectl `)
		assert.True(t, ofK9s, "%s: the command uses the kubeconfig of k9s", name)
		line, _, _ = strings.Cut(line, " 2>&1 | less")
		command := strings.Fields(strings.NewReplacer(`"paused in k9s"`, "x", `"resumed in k9s"`, "x", `"approved in k9s"`, "x").Replace(line))
		require.Equal(t, "sidecarset", command[0], name)
		plugin := cli.NewCommand(genericiooptions.NewTestIOStreamsDiscard())
		found, args, err := plugin.Find(command[1:])
		require.NoError(t, err, name)
		require.NotEqual(t, plugin, found, name)
		require.NoError(t, found.ParseFlags(args), name)
		require.NoError(t, found.ValidateArgs(found.Flags().Args()), name)
		writes := found.Name() == "pause" || found.Name() == "resume" || found.Name() == "approve"
		assert.Equal(t, writes, key.Confirm && key.Dangerous, "%s: k9s asks before a write, and not in its read-only mode", name)
	}
	assert.Len(t, taken, 7)
}
