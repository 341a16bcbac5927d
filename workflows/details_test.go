package workflows

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		"7 batches, 12 pods upgraded, 1 writes rejected", "",
		"Images: agent=agent:v2", "",
		"Rejected:", "",
		"- `default/a`: Invalid; spec: FieldValueForbidden", "", "\u00a0",
	}, "\n"), r.details())
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
