package cli

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/temporal"
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

func TestAWatchedListAndAPageAskTheRuns(t *testing.T) {
	set := sidecarSet(t, "logs")
	set.Status = v1alpha1.SidecarSetStatus{ObservedGeneration: 1, MatchedPods: 3, UpdatedPods: 1, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionProgressing, Status: "True", Reason: v1alpha1.ReasonRolloutProgress},
	}}
	fake := newTestCluster(t, set)
	c := &cluster{Reader: fake.Client, live: fake.Client}
	for want, run := range map[string]view.RunInput{
		"Waiting (the run does not respond)":                      {NotResponding: true},
		"Progressing (Temporal does not respond to this command)": {Unreachable: true},
		"Progressing": {},
	} {
		ask := func(_ context.Context, asked []v1alpha1.SidecarSet) map[string]view.RunInput {
			require.Len(t, asked, 1)
			return map[string]view.RunInput{"logs": run}
		}
		err := c.followSets(t.Context(), ask, func(all listed) error {
			assert.Equal(t, want, all.Summaries[0].Headline)
			return errInterrupted
		})
		require.ErrorIs(t, err, errInterrupted)
	}
	away := NewModels(Sources{Cached: fake.Client, Live: fake.Client, Temporal: unreachableTemporal(t), TemporalOptions: temporal.Options{}})
	all, err := away.List(t.Context(), noon)
	require.NoError(t, err)
	assert.Equal(t, []string{"TemporalNotResponding"}, all[0].Attention)
}

// unreachableTemporal returns a client with the address of a port on which no process listens.
func unreachableTemporal(t *testing.T) sdk.Client {
	t.Helper()
	c, err := sdk.NewLazyClient(sdk.Options{HostPort: "127.0.0.1:1", Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestAGrowingTimeInANoteIsNoNewNote(t *testing.T) {
	note := func(reason, message string) listed {
		fault := view.Fault{Reason: reason, Message: message}
		return listed{note: fault.Line(), about: fault.Reason}
	}
	first := note(view.OperatorNotResponding, "not renewed for 62s")
	assert.Equal(t, first.note, first.newNote(listed{}))
	assert.Empty(t, note(view.OperatorNotResponding, "not renewed for 64s").newNote(first))
	other := note(v1alpha1.ReasonWorkerUnavailable, "no worker polls")
	assert.Equal(t, other.note, other.newNote(first))
}

func TestAWatchedListSurvivesFailedReads(t *testing.T) {
	down := &url.Error{Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	watch := func(reads ...error) ran {
		lists := 0
		return newInterceptedCluster(t, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if _, ok := list.(*v1alpha1.SidecarSetList); !ok {
					return forbidden // The command list works without nodes.
				}
				err := reads[0]
				reads = reads[1:]
				if err != nil {
					return err
				}
				if lists++; lists == 2 {
					require.NoError(t, c.Delete(ctx, sidecarSet(t, "mesh")))
				}
				return c.List(ctx, list, options...)
			},
		}, sidecarSet(t, "logs"), sidecarSet(t, "mesh")).run("list", "-w")
	}
	got := watch(nil, down, forbidden, nil, forbidden, forbidden, forbidden, forbidden, forbidden, forbidden)
	require.ErrorContains(t, got.err, "not allowed")
	note := func(err error) string {
		return "Note: " + explain(err, "list SidecarSets").Error() + "; the list is read again\n"
	}
	assert.Equal(t, note(down)+note(forbidden)+note(forbidden), got.errOut, "consecutive notes about the same failure are one")
	lines := strings.Split(got.out, "\n")
	require.Len(t, lines, 5, got.out)
	assert.Regexp(t, `^mesh .*Pending`, lines[2])
	assert.Regexp(t, `^mesh .*Deleted`, lines[3])
	require.ErrorContains(t, watch(down, nil, nil).err, "cannot be reached")
}
