package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/mocks"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/output"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// exampleFleet returns a rollout whose first stage bakes.
func exampleFleet() *protocol.FleetState {
	return &protocol.FleetState{
		Set: "edge", Hash: "4b7f", Attempt: 1, Planned: true, Policy: "all", Phase: protocol.FleetRolling, Message: "stage canary bakes until 2026-01-02T12:02:00Z",
		Reached: new(noon.Add(-time.Minute)),
		Spec: outriggerv1.FleetPolicySpec{Stages: []outriggerv1.FleetStage{
			{Name: "canary", Clusters: outriggerv1.FleetClusters{MatchLabels: map[string]string{"stage": "canary"}}, Bake: &metav1.Duration{Duration: 3 * time.Minute}},
			{Name: "rest", MaxConcurrentClusters: new(intstr.FromString("50%")), Gates: []string{"errors"}, Approval: &outriggerv1.StepApproval{}},
		}},
		Clusters: map[string]*protocol.FleetCluster{
			"1": {Name: "lab", Hash: "4b7f", Stage: 0, State: protocol.ClusterCompleted, Since: noon.Add(-time.Minute)},
			"2": {Name: "eu-1", Stage: 1, State: protocol.ClusterSkipped, Since: noon, Reason: "no worker of the cluster responded within 10m0s"},
			"3": {Name: "eu-2", Hash: "4b7f", Stage: 1, State: protocol.ClusterPending},
			"4": {Stage: protocol.UnknownStage, State: protocol.ClusterPending},
		},
		Verdicts: []protocol.FleetVerdict{{Hash: "11aa", Phase: protocol.FleetThrough}, {Hash: "22bb", Phase: protocol.FleetFailed}},
		Events: []protocol.FleetEvent{
			{Time: noon.Add(-2 * time.Hour), Hash: "22bb", What: "began", Cluster: "lab"},
			{Time: noon.Add(-time.Hour), Hash: "22bb", What: "failed", Cluster: "lab", Reason: "2 pods failed"},
			{Time: noon.Add(-time.Minute), Hash: "4b7f", What: "approved", Stage: "canary", By: "ann", Reason: "looks good"},
		},
	}
}

func exampleRegistry() *protocol.FleetRegistry {
	return &protocol.FleetRegistry{
		Members: map[string]protocol.FleetMember{
			"1": {UID: "1", Name: "lab", Labels: map[string]string{"stage": "canary"}}, "2": {UID: "2", Name: "eu-1"}, "3": {UID: "3", Name: "eu-2"},
		},
		Freeze: &protocol.FleetFreeze{Frozen: true, By: "bob", Reason: "peak"},
	}
}

// golden compares got with a file in testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}

func TestSpec12_8_TextOfTheFleet(t *testing.T) {
	var status, plan, next, history bytes.Buffer
	require.NoError(t, printState(&status, exampleFleet()))
	require.NoError(t, printState(&status, &protocol.FleetState{Set: "logs", Message: "the rollout cannot be read: no worker polls"}))
	golden(t, "fleet-status.txt", status.Bytes())

	preview := fleet.Plan(exampleFleet(), exampleRegistry(), noon)
	require.NoError(t, printPlan(&plan, &preview))
	golden(t, "fleet-plan.txt", plan.Bytes())

	registry := exampleRegistry()
	registry.Freeze = nil
	preview = fleet.Plan(&protocol.FleetState{Set: "edge"}, registry, noon)
	require.NoError(t, printPlan(&next, &preview))
	golden(t, "fleet-plan-without-policy.txt", next.Bytes())

	shown := fleet.HistoryOf(exampleFleet())
	require.NoError(t, printHistory(&history, &shown))
	golden(t, "fleet-history.txt", history.Bytes())
}

// A reason with line breaks and tabs must not look like another event.
func TestCellsOfTheFleetStayInTheirRow(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, printTable(&out, []string{"WHAT", "BY", "REASON"}, [][]string{{"permitted", "bob", "hotfix\napproved\talice\tchecked"}}))
	assert.Equal(t, "WHAT        BY    REASON\npermitted   bob   hotfix approved alice checked\n", out.String())
}

func TestTextsOfUsersAddNoLineOfTheFleet(t *testing.T) {
	const forged = "x\nedge: cluster eu: Completed"
	state := exampleFleet()
	for _, one := range state.Clusters {
		one.Reason = forged
	}
	state.Message = forged
	var shown, plan bytes.Buffer
	require.NoError(t, (&fleetCommand{}).show(&shown, &fleetWatch{last: map[string]bool{}}, state))
	assert.NotContains(t, shown.String(), "\nedge: cluster eu: Completed")
	require.NotContains(t, ending(state, state.Hash, protocol.FleetPaused).Error(), "\n")
	require.NotContains(t, unreadable([]protocol.FleetState{{Message: forged}}).Error(), "\n")
	preview := fleet.Plan(state, exampleRegistry(), noon)
	preview.Message, preview.Freeze = forged, &protocol.FleetFreeze{By: forged, Reason: forged, Frozen: true}
	require.NoError(t, printPlan(&plan, &preview))
	assert.NotContains(t, plan.String(), "\nedge: cluster eu: Completed")
}

// Temporal responds, but no worker of the fleet responds.
func TestARequestThatNoWorkerConfirmsMayStillTakeEffect(t *testing.T) {
	c := &mocks.Client{}
	c.On("DescribeWorkflowExecution", mock.Anything, mock.Anything, "").Return(&workflowservice.DescribeWorkflowExecutionResponse{}, nil)
	c.On("UpdateWorkflow", mock.Anything, mock.Anything).Return(nil, context.DeadlineExceeded)
	c.On("NewWithStartWorkflowOperation", mock.Anything, mock.Anything, mock.Anything).Return(nil)
	c.On("UpdateWithStartWorkflow", mock.Anything, mock.Anything).Return(nil, context.DeadlineExceeded)
	const want = "not confirmed: no answer from a worker of the fleet; the request may still take effect once a worker runs"
	require.EqualError(t, send(t.Context(), c, "fleet/edge", protocol.AbortUpdate, nil, io.Discard), want)
	require.EqualError(t, (&fleetCommand{}).apply(t.Context(), c, nil, io.Discard), want)

	away := &mocks.Client{}
	away.On("DescribeWorkflowExecution", mock.Anything, mock.Anything, "").Return(nil, serviceerror.NewUnavailable("away"))
	require.EqualError(t, send(t.Context(), away, "fleet/edge", protocol.AbortUpdate, nil, io.Discard), "away")
	require.EqualError(t, (&fleetCommand{}).apply(t.Context(), away, nil, io.Discard), "away")
}

func TestAnUnreadableRolloutOfTheFleetIsAnError(t *testing.T) {
	require.NoError(t, unreadable([]protocol.FleetState{*exampleFleet()}))
	err := unreadable([]protocol.FleetState{*exampleFleet(), {Set: "logs", Message: "the rollout cannot be read: no worker polls"}})
	require.EqualError(t, err, "SidecarSet logs: the rollout cannot be read: no worker polls")
}

// followed follows a rollout whose reads return the given states or errors, one after the other.
func followed(t *testing.T, f *fleetCommand, states ...any) (string, error) {
	t.Helper()
	next := make(chan time.Time, len(states))
	for range states {
		next <- noon
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := &fleetWatch{set: "edge", content: f.content, next: next, read: func(context.Context) (protocol.FleetState, error) {
		if len(states) == 0 {
			cancel()
			return protocol.FleetState{}, ctx.Err()
		}
		state := states[0]
		states = states[1:]
		if err, failed := state.(error); failed {
			return protocol.FleetState{}, err
		}
		return *state.(*protocol.FleetState), nil
	}}
	var out bytes.Buffer
	err := f.follow(ctx, &out, w)
	return out.String(), err
}

func TestSpec12_8_AWatchEndsWithTheRollout(t *testing.T) {
	in := func(phase protocol.FleetPhase) *protocol.FleetState {
		s := exampleFleet()
		s.Phase, s.Message = phase, "2 pods failed"
		return s
	}
	other := exampleFleet()
	other.Hash, other.Verdicts = "55cc", []protocol.FleetVerdict{{Hash: "4b7f", Phase: protocol.FleetSuperseded}}
	away := serviceerror.NewUnavailable("away")
	for name, c := range map[string]struct {
		content string
		states  []any
		code    int
		says    string
	}{
		"through":                  {states: []any{exampleFleet(), in(protocol.FleetThrough)}},
		"failed":                   {states: []any{exampleFleet(), in(protocol.FleetRollingBack), in(protocol.FleetFailed)}, code: 2, says: "the rollout of edge has failed: 2 pods failed"},
		"paused":                   {states: []any{in(protocol.FleetPaused)}, code: 2, says: "the rollout of edge is paused: 2 pods failed (outrigger fleet retry or abort)"},
		"superseded":               {states: []any{exampleFleet(), other}, code: 1, says: "content 4b7f of edge was superseded by content 55cc"},
		"another content":          {content: "22bb", states: []any{exampleFleet()}, code: 2, says: "content 22bb of edge has failed (outrigger fleet history edge)"},
		"content through before":   {content: "11aa", states: []any{exampleFleet()}},
		"content not reported":     {content: "66dd", states: []any{serviceerror.NewNotFound("none"), exampleFleet()}, code: 1, says: "interrupted; the rollout of edge continues"},
		"not found":                {states: []any{serviceerror.NewNotFound("none")}, code: 1, says: "none"},
		"unreachable at the start": {states: []any{away}, code: 1, says: "away"},
		"unreachable after none":   {content: "4b7f", states: []any{serviceerror.NewNotFound("none"), away, in(protocol.FleetThrough)}},
		"unreachable later":        {states: []any{exampleFleet(), away, in(protocol.FleetThrough)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := followed(t, &fleetCommand{content: c.content}, c.states...)
			if c.code == 0 {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, c.code, exitCode(err))
		})
	}
}

func TestSpec12_8_AWatchPrintsWhatChanged(t *testing.T) {
	later, through := exampleFleet(), exampleFleet()
	later.Clusters["2"].State, later.Clusters["2"].Reason = protocol.ClusterRunning, ""
	through.Phase, through.Message = protocol.FleetThrough, "all stages ended"
	out, err := followed(t, &fleetCommand{}, exampleFleet(), exampleFleet(), later, errors.New("away"), through)
	require.NoError(t, err)
	golden(t, "fleet-watch.txt", []byte(out))
	out, err = followed(t, &fleetCommand{output: output.Flag{Format: output.JSON}}, exampleFleet(), exampleFleet(), through)
	require.NoError(t, err)
	assert.Equal(t, 2, bytes.Count([]byte(out), []byte(`"set": "edge"`)), out)
	var failures bytes.Buffer
	away := errors.New("away")
	out, err = followed(t, &fleetCommand{output: output.Flag{Format: output.JSON}, errOut: &failures}, exampleFleet(), away, away, through)
	require.NoError(t, err)
	assert.NotContains(t, out, "away")
	assert.Equal(t, "edge: cannot be read now: away\n", failures.String())
}

func TestFlagsOfAWatchNeedEachOther(t *testing.T) {
	for want, args := range map[string][]string{
		"--timeout and --content need --watch":      {"edge", "--timeout=1m"},
		"--watch needs the name of a SidecarSet":    {"-w"},
		"--timeout must be positive, or 0 for none": {"edge", "-w", "--timeout=-1m"},
		`--output "wide": use json, yaml`:           {"edge", "-o", "wide"},
		"accepts at most 1 arg(s), received 2":      {"edge", "other"},
	} {
		root := newCommand()
		root.SetArgs(append([]string{"fleet", "status"}, args...))
		err := root.ExecuteContext(t.Context())
		require.ErrorContains(t, err, want)
		assert.Equal(t, 1, exitCode(err))
	}
}

func TestTheEndOfAFreezeOfTheFleetIsAFutureTime(t *testing.T) {
	for want, args := range map[string][]string{
		`--until "tomorrow" is not a time such as `:           {"--until=tomorrow"},
		"--until 2026-01-01T00:00:00Z has passed; now it is ": {"--until=2026-01-01T00:00:00Z"},
		`--until "" is not a time such as `:                   {"--until="},
		"--for must be positive, for example 2h":              {"--for=0s"},
		"use either --until or --for":                         {"--for=2h", "--until=2026-01-01T00:00:00Z"},
	} {
		root := newCommand()
		root.SetArgs(append([]string{"fleet", "freeze"}, args...))
		require.ErrorContains(t, root.ExecuteContext(t.Context()), want)
	}
}

// Without this error, the second FleetPolicy would be ignored, and its SidecarSets would roll out without
// stages.
func TestSpec12_1_AFileWithSeveralFleetPoliciesIsRejected(t *testing.T) {
	document := "apiVersion: outrigger.io/v1alpha1\nkind: FleetPolicy\nmetadata: {name: edge}\nspec: {sidecarSets: {matchNames: [edge-*]}, stages: [{name: all}]}\n"
	f := &fleetCommand{file: "-"}
	require.EqualError(t, f.readPolicy(strings.NewReader(document+"---\n"+document)), "-: it has several documents: give one document per file")
	require.NoError(t, f.readPolicy(strings.NewReader("---\n"+document)))
	require.NoError(t, f.readPolicy(strings.NewReader("# the policy of edge\n---\n"+document+"---\n# end\n")))
	assert.Equal(t, "edge", f.policy.Metadata.Name)
}
