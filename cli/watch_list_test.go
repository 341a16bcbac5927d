package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

func TestAWatchedListPrintsTheSidecarSetsThatChanged(t *testing.T) {
	var out bytes.Buffer
	s := &shared{IOStreams: genericiooptions.IOStreams{Out: &out}, now: time.Now}
	first := view.Summaries{{Name: "logs", Headline: "Progressing"}, {Name: "mesh", Headline: "Complete"}}
	require.NoError(t, s.printChanged(output.Flag{}, nil, first, true))
	require.NoError(t, s.printChanged(output.Flag{}, first, first, false))
	second := view.Summaries{{Name: "logs", Headline: "Complete"}, first[1]}
	require.NoError(t, s.printChanged(output.Flag{}, first, second, false))
	lines := strings.Split(out.String(), "\n")
	require.Len(t, lines, 5)
	assert.Contains(t, lines[0], "NAME")
	assert.Regexp(t, `^logs .*Progressing`, lines[1])
	assert.Regexp(t, `^mesh .*Complete`, lines[2])
	assert.Regexp(t, `^logs .*Complete`, lines[3])
	require.EqualError(t, newTestCluster(t).run("list", "-w", "--missing").err, "--watch shows SidecarSets: leave out --outdated and --missing")
}
