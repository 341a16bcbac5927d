package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	sdk "go.temporal.io/sdk/temporal"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/temporal"
)

var localRuns = &runs{options: temporal.Options{Address: "127.0.0.1:7233", Namespace: "default"}}

const (
	pausePatch = `kubectl patch sidecarset logs --type=merge -p '{"spec":{"updateStrategy":{"paused":true}}}'`
	unread     = "not confirmed: no worker responds for the run (kubectl sidecarset check)"
	here       = "Temporal at 127.0.0.1:7233, namespace default"
)

func TestTheErrorOfAnUpdateHasItsRemedy(t *testing.T) {
	for _, c := range []struct {
		update string
		err    error
		want   string
	}{
		{protocol.PauseUpdate, errUnread, unread + "; the pause takes effect once a worker runs; to withdraw it: kubectl sidecarset resume logs; the spec pauses the rollout in any case: " + pausePatch},
		{protocol.ResumeUpdate, errUnread, unread + "; the resume takes effect once a worker runs; to withdraw it: kubectl sidecarset pause logs"},
		{protocol.PauseUpdate, serviceerror.NewNotFound("x"), "no run is open, because no pod is left to upgrade; " +
			"spec.updateStrategy.paused pauses the next run: " + pausePatch + "; if the operator uses another Temporal than " + strings.TrimPrefix(here, "Temporal at ") + ", " + otherTemporal},
		{protocol.ResumeUpdate, sdk.NewApplicationError(protocol.NotPaused, ""), "the run is not paused (kubectl sidecarset status logs)"},
		{protocol.PauseUpdate, serviceerror.NewUnavailable("x"), here + ": no answer (check the server, the network and --temporal-tls, or correct --temporal-address or TEMPORAL_ADDRESS); " +
			"to pause by the spec, which takes effect when Temporal responds: " + pausePatch},
	} {
		require.EqualError(t, localRuns.explainUpdate(sidecarSet(t, "logs"), c.update, c.err), c.want)
	}
}

func TestAFailedResumeOfTheSpecPrintsNoAnswer(t *testing.T) {
	paused := sidecarSet(t, "logs", func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Paused = true })
	got := newInterceptedCluster(t, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "sidecarsets"}, "logs", errors.New("no right"))
		},
	}, paused).run("resume", "logs")
	require.ErrorContains(t, got.err, "no right")
	assert.Empty(t, got.out)
}

func TestAnUpdateOfAllRunsHasALineForEach(t *testing.T) {
	paused := func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Paused = true }
	sets := []v1alpha1.SidecarSet{*sidecarSet(t, "ended"), *sidecarSet(t, "logs"), *sidecarSet(t, "mesh", paused), *sidecarSet(t, "slow")}
	ok := updateAnswer{PauseResult: protocol.PauseResult{Paused: true, Message: "paused"}}
	ended := serviceerror.NewNotFound("x")
	all := (&sender{localRuns, protocol.PauseUpdate, protocol.Pause{}}).answers(sets, []updateAnswer{{}, {}, ok, ok}, []error{ended, errUnread, nil, nil})
	assert.Equal(t, "sidecarset/logs failed: "+localRuns.explainUpdate(sidecarSet(t, "logs"), protocol.PauseUpdate, errUnread).Error()+"\n"+
		"sidecarset/mesh paused\nsidecarset/slow paused\n"+
		"SidecarSets without an open run, which are not paused: 1; spec.updateStrategy.paused pauses their next run\n"+
		"next: kubectl sidecarset resume --all\n", all.Text(view.Style{}))
	require.EqualError(t, all.failure(protocol.PauseUpdate), "pause failed for 1 of 3 SidecarSets: logs")

	resumed := updateAnswer{PauseResult: protocol.PauseResult{Message: "resumed"}}
	all = (&sender{localRuns, protocol.ResumeUpdate, protocol.Pause{}}).answers(sets, []updateAnswer{{}, resumed, resumed, {}},
		[]error{ended, nil, nil, sdk.NewApplicationError(protocol.NotPaused, "")})
	assert.Equal(t, "sidecarset/logs resumed\nsidecarset/mesh resumed; paused: "+view.PausedBySpec("mesh")+"\nsidecarset/slow unchanged: the run is not paused\n", all.Text(view.Style{}))
	require.NoError(t, all.failure(protocol.ResumeUpdate))

	all = (&sender{localRuns, protocol.PauseUpdate, protocol.Pause{}}).answers(sets[:1], []updateAnswer{{}}, []error{ended})
	assert.Equal(t, "no SidecarSet has an open run; if the operator uses another Temporal than "+strings.TrimPrefix(here, "Temporal at ")+", "+otherTemporal+"\n", all.Text(view.Style{}))
	require.NoError(t, all.failure(protocol.PauseUpdate))
}

func TestAnUpdateOfNoRunFailsIfARolloutIsUnfinished(t *testing.T) {
	unfinished := func(s *v1alpha1.SidecarSet) {
		s.Status.MatchedPods, s.Status.UpdatedPods = 6, 2
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRolloutProgress})
	}
	complete := func(s *v1alpha1.SidecarSet) {
		unfinished(s)
		s.Status.UpdatedPods, s.Status.Conditions[0].Reason = 6, v1alpha1.ReasonRolloutComplete
	}
	paused := func(s *v1alpha1.SidecarSet) {
		unfinished(s)
		s.Spec.UpdateStrategy.Paused, s.Status.Conditions[0].Reason = true, v1alpha1.ReasonPaused
	}
	sets := []v1alpha1.SidecarSet{*sidecarSet(t, "ended", complete), *sidecarSet(t, "logs", unfinished), *sidecarSet(t, "mesh", paused)}
	ended := serviceerror.NewNotFound("x")
	answers := func(update string, sets []v1alpha1.SidecarSet, errs ...error) updateAnswers {
		return (&sender{localRuns, update, protocol.Pause{}}).answers(sets, make([]updateAnswer, len(sets)), errs)
	}
	none := "no SidecarSet has an open run; if the operator uses another Temporal than " + strings.TrimPrefix(here, "Temporal at ") + ", " + otherTemporal + "\n"
	require.EqualError(t, localRuns.explainUpdate(&sets[1], protocol.ResumeUpdate, ended), here+" has no open run of the SidecarSet, but status shows an unfinished rollout: if the operator uses another Temporal, "+otherTemporal+"; kubectl sidecarset status logs")
	all := answers(protocol.PauseUpdate, sets, ended, ended, ended)
	assert.Equal(t, none, all.Text(view.Style{}))
	require.EqualError(t, all.failure(protocol.PauseUpdate), "pause failed: no run is open, but the status of these SidecarSets shows an unfinished rollout: logs")
	require.NoError(t, answers(protocol.PauseUpdate, sets, nil, ended, ended).failure(protocol.PauseUpdate))
	require.NoError(t, answers(protocol.PauseUpdate, sets[:1], ended).failure(protocol.PauseUpdate))

	all = answers(protocol.ResumeUpdate, sets, ended, ended, ended)
	assert.Equal(t, "sidecarset/mesh has no open run; paused: "+view.PausedBySpec("mesh")+"\n"+none, all.Text(view.Style{}))
	require.EqualError(t, all.failure(protocol.ResumeUpdate), "resume failed: no run is open, but the status of these SidecarSets shows an unfinished rollout: logs")
	require.EqualError(t, answers(protocol.ResumeUpdate, sets, ended, errUnread, ended).failure(protocol.ResumeUpdate), "resume failed for 1 of 1 SidecarSets: logs")
}
