package activities

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"k8s.io/utils/clock"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// measureOfFleet makes one measurement of gate. The activity has no Kubernetes client.
func measureOfFleet(t *testing.T, gate outriggerv1.RolloutGate) (measured protocol.Measurement, err error) {
	t.Helper()
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	gates := &Activities{GateClient: NewGateClient(), Clock: clock.RealClock{}}
	env.RegisterActivity(gates.MeasureFleetGate)
	result, err := env.ExecuteActivity(gates.MeasureFleetGate, protocol.FleetGateInput{Set: "envoy", Hash: "4b7f", Policy: "edge", Stage: "canary", Gate: gate, Attempt: 1})
	if err == nil {
		err = result.Get(&measured)
	}
	return measured, err
}

func TestSpec12_2_AGateOfAFleetReadsNoCluster(t *testing.T) {
	var asked map[string]any
	var query string
	status := http.StatusOK
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		if r.URL.Path == "/api/v1/query" {
			query = r.FormValue("query")
			_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"0.01"]}}`)
			return
		}
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&asked))
		_, _ = io.WriteString(w, `{"phase":"Running","message":"2 of 3 checks"}`)
	}))
	t.Cleanup(provider.Close)
	measured, err := measureOfFleet(t, hook(provider.URL))
	require.NoError(t, err)
	assert.Equal(t, protocol.Measurement{Phase: protocol.GateRunning, Message: "2 of 3 checks"}, measured)
	assert.Equal(t, map[string]any{"sidecarSet": "envoy", "generation": 0.0, "revision": "4b7f", "step": "canary", "pods": 0.0}, asked)

	measured, err = measureOfFleet(t, errorRate(provider.URL))
	require.NoError(t, err)
	assert.Equal(t, protocol.Measurement{Value: "0.01", Phase: protocol.GateSuccess}, measured)
	assert.Equal(t, `errors{set="envoy",step="canary",generation="0"}`, query)

	status = http.StatusBadGateway
	_, err = measureOfFleet(t, hook(provider.URL))
	require.ErrorContains(t, err, "FleetPolicy edge: gate checks: ask http://")
	wrong := errorRate(provider.URL)
	wrong.Prometheus.Query = "{{.Pod}}"
	measured, err = measureOfFleet(t, wrong)
	require.NoError(t, err)
	assert.Contains(t, measured.Message, "; correct the policy and retry the rollout")
}

// A user with write access to the Temporal namespace of the fleet could otherwise choose the address that
// receives a Secret.
func TestSpec12_2_AGateOfAFleetSendsNoSecret(t *testing.T) {
	for _, gate := range []outriggerv1.RolloutGate{errorRate("http://127.0.0.1:1"), hook("http://127.0.0.1:1")} {
		credentials := &outriggerv1.GateCredentials{Name: "outrigger-gates"}
		if gate.Prometheus != nil {
			gate.Prometheus.Credentials = credentials
		} else {
			gate.Webhook.Credentials = credentials
		}
		measured, err := measureOfFleet(t, gate)
		require.NoError(t, err)
		assert.Equal(t, inconclusive("a gate of a fleet must not have credentials"), measured)
	}
}

// The same content may reach the same stage again after a rollout of other content.
func TestSpec12_2_AWorkflowBelongsToOneAttemptOfAStage(t *testing.T) {
	input := &protocol.FleetGateInput{Set: "envoy", Hash: "4b7f", Stage: "canary", Gate: outriggerv1.RolloutGate{Name: "manual"}, Reached: time.UnixMilli(17), Attempt: 2}
	assert.Equal(t, "gate/fleet/envoy/4b7f/canary/manual/17-2", workflowOfFleetGate(input))
}
