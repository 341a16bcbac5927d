package ui

import (
	"bytes"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func golden(t *testing.T, template string, p page) {
	t.Helper()
	p.Now = noon
	var out bytes.Buffer
	require.NoError(t, parse(template).Execute(&out, p))
	file := filepath.Join("testdata", template)
	if *update {
		require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), out.String())
}

func TestTheListNamesWhatNeedsAttention(t *testing.T) {
	golden(t, "list.html", page{Title: "SidecarSets", Body: view.Summaries{
		{Name: "logs", Headline: "Baking (step 1 of 2)", BakesUntil: new(noon.Add(time.Minute)), Matched: 4, Updated: 1, Ready: 4, Created: noon.Add(-time.Hour)},
		{Name: "mesh", Headline: "Stalled (ImagePullBackOff)", Attention: []string{"ImagePullBackOff", "Paused"}, Images: []view.Image{{Container: "proxy", Image: "proxy:<v2>"}}},
	}})
}

func TestThePageOfASidecarSetHasStepsGatesAndPods(t *testing.T) {
	since := noon.Add(-time.Minute)
	rollout := &view.Rollout{
		Name: "logs", Generation: 2, Observed: true, Headline: "Paused", Phase: protocol.PhasePaused, Counts: protocol.Counts{Matched: 3, Updated: 1, UpdatedReady: 1, Remaining: 2},
		Limits: view.Limits{MaxUnavailable: "1", Slots: 1}, Pause: &protocol.Pause{By: "ann", Reason: "<look>"}, Policy: "edge",
		Conditions: []view.Condition{{Type: v1alpha1.ConditionProgressing, Status: "False", Reason: v1alpha1.ReasonPaused, Since: since}},
		Steps: []view.Step{
			{Number: 1, Name: "canary", UpTo: "1", Bake: "10m0s", State: view.StepBaking, BakesUntil: new(noon.Add(4 * time.Minute)), Gates: []protocol.GateState{
				{Name: "errors", Phase: protocol.GateFailure, Message: "2 of 3 samples failed", Measurements: []protocol.Measurement{{Value: "0.2"}, {}}},
			}},
			{Number: 2, UpTo: "100%", Approval: true, State: view.StepNext},
		},
		Revisions: []view.Revision{{Name: "logs-2", Current: true, Images: []view.Image{{Container: "agent", Image: "agent:v2"}}, Owners: []view.Owner{
			{Namespace: "shop", Kind: "Deployment", Name: "web", Pods: []view.Pod{
				{Namespace: "shop", Name: "web-a", Phase: view.PodUpdated, Ready: true},
				{Namespace: "shop", Name: "web-b", Phase: view.PodUpgrading, Since: &since, Reason: "agent starts", Node: "node-1"},
			}},
		}}},
	}
	golden(t, "set.html", page{Title: "SidecarSet logs", Fleet: true, Body: newSetPage(rollout, "javascript:alert(1)", noon)})
}

func TestThePageOfASidecarSetLimitsItsPods(t *testing.T) {
	owner := view.Owner{Pods: make([]view.Pod, maxListedPods+7)}
	p := newSetPage(&view.Rollout{Revisions: []view.Revision{{Owners: []view.Owner{owner}}}}, "", noon)
	assert.Len(t, p.Pods, maxListedPods)
	assert.Equal(t, 7, p.More)
}

func TestTheFleetHasStagesAndClusters(t *testing.T) {
	state := &protocol.FleetState{
		Set: "edge", Hash: "4b7f", Attempt: 1, Policy: "all", Phase: protocol.FleetRolling, Message: "stage canary bakes", Reached: new(noon.Add(-time.Minute)),
		Spec: outriggerv1.FleetPolicySpec{Stages: []outriggerv1.FleetStage{
			{Name: "canary", Bake: &metav1.Duration{Duration: 3 * time.Minute}}, {Name: "rest", Gates: []string{"errors"}, Approval: &outriggerv1.StepApproval{}},
		}},
		Clusters: map[string]*protocol.FleetCluster{
			"1": {Name: "lab", Stage: 0, State: protocol.ClusterCompleted, Since: noon.Add(-time.Minute)},
			"2": {Name: "eu-1", Stage: 1, State: protocol.ClusterFailed, Reason: "1 pod failed"},
			"3": {Stage: protocol.UnknownStage, State: protocol.ClusterPending},
		},
	}
	unreadable := &protocol.FleetState{Set: "logs", Message: "the rollout cannot be read: no worker polls"}
	golden(t, "fleet.html", page{Title: "Fleet", Fleet: true, Body: []fleetRollout{newFleetRollout(state, noon), newFleetRollout(unreadable, noon)}})
}

func TestPagesOnlyAnswerReads(t *testing.T) {
	handler := (&site{log: logr.Discard()}).handler(localOnly)
	serve := func(method, url string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(method, url, nil))
		return answer
	}
	for _, path := range []string{"/", "/sidecarsets/logs", "/page.js"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			assert.Equal(t, http.StatusMethodNotAllowed, serve(method, "http://localhost:8089"+path).Code, method+" "+path)
		}
	}
	assert.Equal(t, http.StatusNotFound, serve(http.MethodGet, "http://localhost:8089/fleet").Code, "there is no fleet")
	answer := serve(http.MethodGet, "http://localhost:8089/page.js")
	assert.Equal(t, http.StatusOK, answer.Code)
	assert.Contains(t, answer.Header().Get("Content-Type"), "javascript")
	policy := answer.Header().Get("Content-Security-Policy")
	assert.Contains(t, policy, "default-src 'none'")
	assert.Contains(t, policy, "frame-ancestors 'none'")
	assert.NotContains(t, policy, "unsafe")
}

// The host name of a foreign site may resolve to 127.0.0.1 in the browser of a user.
func TestLoopbackAnswersOnlyItsOwnNames(t *testing.T) {
	handler := (&site{log: logr.Discard()}).handler(localOnly)
	for host, code := range map[string]int{
		"localhost": 200, "localhost:8089": 200, "127.0.0.1:8089": 200, "[::1]:8089": 200, "[::1]": 200, "evil.example": 403, "evil.example:8089": 403, "10.0.0.1:8089": 403,
	} {
		request := httptest.NewRequest(http.MethodGet, "/page.css", nil)
		request.Host = host
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		assert.Equal(t, code, answer.Code, host)
	}
}

func TestAnotherAddressNeedsACertificate(t *testing.T) {
	for address, local := range map[string]bool{"127.0.0.1:0": true, "localhost:8089": true, "[::1]:8089": true} {
		got, err := (&Options{Address: address}).loopback()
		require.NoError(t, err)
		assert.Equal(t, local, got)
	}
	for _, address := range []string{":8089", "0.0.0.0:8089", "10.0.0.1:8089", "ui.example:8089"} {
		_, err := (&Options{Address: address}).loopback()
		require.ErrorContains(t, err, "--tls-cert-file", address)
		local, err := (&Options{Address: address, CertFile: "a", KeyFile: "b"}).loopback()
		require.NoError(t, err)
		assert.False(t, local)
	}
	_, err := (&Options{Address: "localhost:1", KeyFile: "b"}).loopback()
	require.ErrorContains(t, err, "need each other")
	_, err = (&Options{Address: "localhost"}).loopback()
	require.ErrorContains(t, err, "host:port")
}
