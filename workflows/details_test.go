package workflows

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/protocol"
)

func failedPod(name, reason string) protocol.RejectedPod {
	return protocol.RejectedPod{PodReference: pod(name), Reason: reason}
}

func TestDetailsShowTheProgressOfARun(t *testing.T) {
	r := &run{
		input: protocol.RolloutInput{SidecarSet: input(3).SidecarSet, Generation: 3, Images: "agent=agent:v2"}, phase: protocol.PhaseWaiting, message: "12 of 20 pods updated,\n10 of them ready",
		progress:     protocol.Progress{Batches: 7, Upgraded: 12, RejectedWrites: 1},
		rejectedPods: []protocol.RejectedPod{failedPod("a", "Invalid; spec: FieldValueForbidden")},
	}
	assert.Equal(t, strings.Join([]string{
		"**logs**, generation 3: **Waiting**", "",
		"12 of 20 pods updated, 10 of them ready", "",
		"7 batches, 12 upgrades started, 1 writes rejected", "",
		"Images: agent=agent:v2", "",
		"Rejected:", "",
		"- `default/a`: Invalid; spec: FieldValueForbidden", "", "\u00a0",
	}, "\n"), r.details())
}

func TestDetailsListTheSteps(t *testing.T) {
	step := &protocol.Step{Name: "canary", UpTo: intstr.FromString("5%"), Bake: time.Minute, Approval: true}
	reached := time.Date(2026, 1, 2, 9, 0, 0, 0, time.UTC)
	stage := &protocol.Stage{Policy: "edge", Steps: 4, Index: 1, Step: step}
	r := &run{input: input(1), phase: protocol.PhaseProgressing, progress: protocol.Progress{Stage: stage}}
	steps := func() string {
		_, list, found := strings.Cut(r.details(), "RolloutPolicy edge:\n\n")
		require.True(t, found, r.details())
		return strings.TrimSuffix(list, "\n\n\u00a0")
	}
	assert.Equal(t, "- 1 ended ✔\n- **step 2 of 4 (canary)**, up to 5%, then bakes for 1m0s\n- 2 to come", steps())
	stage.Reached, r.phase = &reached, protocol.PhaseBaking
	assert.Equal(t, "- 1 ended ✔\n- **step 2 of 4 (canary)**, up to 5%, bakes until 2026-01-02T09:01:00Z\n- 2 to come", steps())
	r.phase = protocol.PhaseAwaitingApproval
	assert.Equal(t, "- 1 ended ✔\n- **step 2 of 4 (canary)**, up to 5%, waits for approval\n- 2 to come", steps())
	r.progress.Stage = &protocol.Stage{Policy: "edge", Steps: 1}
	assert.Equal(t, "- **step 1 of 1**", steps())
	for _, without := range []*protocol.Stage{nil, {Policy: "edge", Done: true}, {Policy: "edge", Quarantine: &protocol.Quarantine{}}} {
		r.progress.Stage = without
		assert.NotContains(t, r.details(), "RolloutPolicy")
	}
}

func TestDetailsNameSomeRejectedPodsAndCountTheOthers(t *testing.T) {
	r := &run{input: input(1), phase: protocol.PhaseProgressing}
	for i := range maxShownRejected + 3 {
		r.rejectedPods = append(r.rejectedPods, failedPod(fmt.Sprintf("pod-%02d", i), "Forbidden"))
	}
	details := r.details()
	assert.Contains(t, details, "`default/pod-09`: Forbidden")
	assert.NotContains(t, details, "pod-10")
	assert.True(t, strings.HasSuffix(details, "- and 3 more\n\n\u00a0"), details)
}

func TestRejectedPodsHaveTheirNewestReasonOfEachPodUntilItIsWritten(t *testing.T) {
	known := recordRejected(nil, nil, []protocol.RejectedPod{failedPod("a", "Forbidden"), failedPod("b", "Forbidden")})
	known = recordRejected(known, []protocol.PodReference{pod("b")}, []protocol.RejectedPod{failedPod("a", "Invalid")})
	assert.Equal(t, []protocol.RejectedPod{failedPod("a", "Invalid")}, known)

	var many []protocol.RejectedPod
	for i := range maxNamedRejected + 1 {
		many = append(many, failedPod(fmt.Sprint(i), "Forbidden"))
	}
	require.Len(t, recordRejected(known, nil, many), maxNamedRejected)
}
