package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/cli/view"
)

// staged creates a scenario, and a RolloutPolicy that selects only the SidecarSet of the scenario. steps is
// YAML. The caller calls remove at the end of the test, because other tests list all SidecarSets.
func staged(t *testing.T, name, steps string) (remove func()) {
	t.Helper()
	scenario(t, name)
	kubectl(t, strings.NewReplacer("NAME", name, "STEPS", steps).Replace(`
apiVersion: outrigger.io/v1alpha1
kind: RolloutPolicy
metadata: {name: NAME}
spec:
  selector: {matchLabels: {rollout: NAME}}
  steps: STEPS
`), "apply", "-f", "-")
	kubectl(t, "", "label", "sidecarset", name, "rollout="+name)
	return func() { kubectl(t, "", "delete", "rolloutpolicy/"+name, "sidecarset/"+name, "deployment/"+name) }
}

func TestARolloutIsApprovedAndPromoted(t *testing.T) {
	defer staged(t, "edge", `[{name: canary, upTo: 1, approval: {}}, {upTo: 50%, bake: 1h, approval: {}}, {upTo: 5, bake: 1h}]`)()
	assert.Contains(t, shows(t, "plan", "edge", "--image=agent=agent:v2"), "step 1 of 3 (canary): 1 pod, waits for approval\n")
	setImage(t, "edge", "agent:v2")
	eventually(t, []string{"status", "edge"}, "Status:    AwaitingApproval (step 1 of 3)\n", "1 of 6 updated, 1 of them ready",
		"Step:      1 of 3, RolloutPolicy edge\n           ● step 1 (canary): waits for approval (up to 1 pod, needs approval)\n           ○ step 2: up to 50% of the pods, bakes 60m, needs approval\n",
		"Next:      kubectl sidecarset approve edge\n")
	eventually(t, []string{"list"}, "AwaitingApproval (step 1 of 3) ")
	assert.Contains(t, shows(t, "why", "edge"), "  step 1 of 3 (canary) waits for approval (kubectl sidecarset approve edge)\n")
	out, err := sidecarset(t, "status", "edge", "-w", "--timeout=10s")
	require.EqualError(t, err, "the rollout of SidecarSet edge has not ended after 10s")
	assert.Contains(t, out, "; kubectl sidecarset approve edge\n")
	_, err = sidecarset(t, "restart", "edge")
	require.ErrorContains(t, err, "the rollout is in progress")

	assert.Equal(t, "sidecarset/edge: step 1 of 3 (canary) is approved\nnext: kubectl sidecarset status edge --watch\n", shows(t, "approve", "edge", "--reason=looks good"))
	eventually(t, []string{"status", "edge"}, "Status:    Baking (step 2 of 3, ", "3 of 6 updated, 3 of them ready",
		"           ✔ step 1 (canary): up to 1 pod, needs approval\n           ● step 2: baking, ", "Next:      end the bake time: kubectl sidecarset promote edge\n")
	eventually(t, []string{"list"}, "Baking (step 2 of 3, ")
	_, err = sidecarset(t, "approve", "edge", "--step=1")
	require.EqualError(t, err, "approve the rollout of SidecarSet edge: the request is for step 1, and the current step is step 2 of 3 (kubectl sidecarset status edge)")
	approved := shows(t, "approve", "edge")
	assert.Contains(t, approved, "sidecarset/edge: step 2 of 3 is approved\nthe rollout continues after the bake time, ")
	assert.Contains(t, shows(t, "approve", "edge"), "sidecarset/edge: step 2 of 3 is approved already from admin\n")

	assert.JSONEq(t, `{"name": "edge", "message": "step 2 of 3 ended; the next step begins"}`, shows(t, "promote", "edge", "-o", "json"))
	eventually(t, []string{"status", "edge"}, "Status:    Baking (step 3 of 3, ", "5 of 6 updated, 5 of them ready", "○ all remaining pods\n")
	var rollout view.Rollout
	require.NoError(t, json.Unmarshal([]byte(shows(t, "status", "edge", "-o", "json")), &rollout))
	assert.Equal(t, []view.StepState{view.StepEnded, view.StepEnded, view.StepBaking}, []view.StepState{rollout.Steps[0].State, rollout.Steps[1].State, rollout.Steps[2].State})
	assert.Equal(t, "sidecarset/edge: all steps ended; the rollout upgrades all remaining pods\nnext: kubectl sidecarset status edge --watch\n", shows(t, "promote", "edge", "--full", "--reason=no time"))
	shows(t, "status", "edge", "--watch", "--timeout=3m")
	history := shows(t, "history", "edge")
	assert.Regexp(t, `admin +approved +step 1: looks good\n`, history)
	assert.Regexp(t, `admin +promoted +all steps: no time\n`, history)
	eventually(t, []string{"promote", "edge"}, "promote the rollout of SidecarSet edge: all its steps have ended")
}

func TestAnApprovalOfARolloutWithoutARunOrAPolicyFails(t *testing.T) {
	defer staged(t, "gone", `[{upTo: 1, bake: 1h}]`)()
	out, err := sidecarset(t, "approve", "gone")
	require.ErrorContains(t, err, "approve the rollout of SidecarSet gone: it has no steps: no RolloutPolicy selects the SidecarSet", out)
	setImage(t, "gone", "agent:v2")
	eventually(t, []string{"list"}, "Baking (step 1 of 1, ")
	_, err = sidecarset(t, "approve", "gone", "--temporal-namespace=temporal-system")
	require.ErrorContains(t, err, "approve the rollout of SidecarSet gone: Temporal at ")
	require.ErrorContains(t, err, "namespace temporal-system has no open run of the SidecarSet")
	_, err = sidecarset(t, "promote", "gone", "--temporal-address=127.0.0.1:1")
	require.ErrorContains(t, err, "Temporal at 127.0.0.1:1, namespace default: connection refused")
	assert.Contains(t, shows(t, "approve", "gone"), "sidecarset/gone: step 1 of 1 needs no approval\n")

	// If the policy cannot be read, the command status still shows the current step.
	kubectl(t, "", "create", "clusterrolebinding", "gone", "--clusterrole=gone", "--user=gone")
	defer kubectl(t, "", "delete", "clusterrolebinding/gone", "clusterrole/gone")
	kubectl(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: gone}
rules:
- {apiGroups: [apps.kruise.io], resources: [sidecarsets], verbs: [get, list]}
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
`, "apply", "-f", "-")
	eventually(t, []string{"status", "gone", "--as=gone"}, "Step:      1 of 1, RolloutPolicy gone\n           ● step 1: baking, ")

	kubectl(t, "", "patch", "sidecarset", "gone", "--type=merge", "-p", `{"spec":{"updateStrategy":{"paused":true}}}`)
	eventually(t, []string{"status", "gone"}, "Status:    Paused", "5 to go", "● step 1: paused (up to 1 pod, bakes 60m)")
}

func TestAnApprovalWithoutAWorkerIsNotConfirmed(t *testing.T) {
	defer staged(t, "unconfirmed", `[{upTo: 1, approval: {}}, {upTo: 2, approval: {}}]`)()
	setImage(t, "unconfirmed", "agent:v2")
	eventually(t, []string{"status", "unconfirmed"}, "Status:    AwaitingApproval (step 1 of 2)")
	shows(t, "pause", "unconfirmed", "--reason=lunch")
	eventually(t, []string{"status", "unconfirmed"}, "Status:    Paused", "Paused:    for ")
	assert.Equal(t, "sidecarset/unconfirmed: step 1 of 2 is approved\npaused: by admin: lunch (kubectl sidecarset resume unconfirmed)\n", shows(t, "approve", "unconfirmed"))
	shows(t, "resume", "unconfirmed")
	eventually(t, []string{"status", "unconfirmed"}, "Status:    AwaitingApproval (step 2 of 2)", "2 of 6 updated, 2 of them ready")
	eventually(t, []string{"list"}, "AwaitingApproval (step 2 of 2)") // Without a worker, list reads the step from the status.

	require.NoError(t, stack.Stop("worker"))
	_, err := sidecarset(t, "approve", "unconfirmed")
	require.NoError(t, stack.StartAgain(t.Context(), "worker"))
	require.ErrorContains(t, err, "approve the rollout of SidecarSet unconfirmed: not confirmed: no worker responds for the run")
	assert.ErrorContains(t, err, "; the approval may still take effect once a worker runs, but only for step 2 of generation 2; to repeat it: kubectl sidecarset approve unconfirmed --step 2")
	eventually(t, []string{"approve", "unconfirmed", "--step=2"}, "all its steps have ended")
	shows(t, "status", "unconfirmed", "--watch", "--timeout=3m")
}
