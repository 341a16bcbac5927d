package cli

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

func TestAWatchedListSurvivesFailedReads(t *testing.T) {
	down := &url.Error{Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	watch := func(reads ...error) ran {
		return newInterceptedCluster(t, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				err := reads[0]
				reads = reads[1:]
				if len(reads) == 1 {
					require.NoError(t, c.Delete(ctx, sidecarSet(t, "mesh")))
				}
				if err != nil {
					return err
				}
				return c.List(ctx, list, options...)
			},
		}, sidecarSet(t, "logs"), sidecarSet(t, "mesh")).run("list", "-w")
	}
	got := watch(nil, down, down, nil, forbidden)
	require.ErrorContains(t, got.err, "not allowed")
	assert.Equal(t, "Note: "+explain(down, "list SidecarSets").Error()+"; the list is read again\n", got.errOut)
	lines := strings.Split(got.out, "\n")
	require.Len(t, lines, 5, got.out)
	assert.Regexp(t, `^mesh .*Pending`, lines[2])
	assert.Regexp(t, `^mesh .*Deleted`, lines[3])
	require.ErrorContains(t, watch(down, nil, nil).err, "cannot be reached")
}
