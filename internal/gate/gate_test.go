package gate

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// letters maps the letters of samples in tests to phases.
var letters = map[rune]protocol.GatePhase{
	's': protocol.GateSuccess, 'f': protocol.GateFailure, 'i': protocol.GateInconclusive, 'r': protocol.GateRunning,
}

func TestSpec11_14_TheSamplesDecide(t *testing.T) {
	for _, c := range []struct {
		samples, limit int32
		answers        string
		phase          protocol.GatePhase
		message        string
	}{
		{0, 0, "s", protocol.GateSuccess, "1 of 1 samples, last value 1"},
		{1, 0, "f", protocol.GateFailure, "1 of 1 samples, 1 failed, last value 1"},
		{1, 0, "i", protocol.GateInconclusive, "1 of 1 samples, 1 inconclusive, last value 1"},
		{3, 0, "ss", protocol.GateRunning, "2 of 3 samples, last value 2"},
		{3, 0, "sf", protocol.GateFailure, "2 of 3 samples, 1 failed, last value 2"},
		{3, 1, "sf", protocol.GateRunning, "2 of 3 samples, 1 failed, last value 2"},
		{3, 1, "sfs", protocol.GateSuccess, "3 of 3 samples, 1 failed, last value 3"},
		{3, 1, "ff", protocol.GateFailure, "2 of 3 samples, 2 failed, last value 2"},
		{3, 1, "sis", protocol.GateInconclusive, "3 of 3 samples, 1 inconclusive, last value 3"},
		{2, 2, "ff", protocol.GateInconclusive, "2 of 2 samples, 2 failed, last value 2"},
	} {
		gate := &outriggerv1.RolloutGate{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{Samples: c.samples, FailureLimit: c.limit}}
		state := protocol.GateState{Name: "errors", Phase: protocol.GatePending}
		for i, letter := range c.answers {
			state = Record(gate, state, protocol.Measurement{Value: Format(float64(i + 1)), Phase: letters[letter]})
		}
		assert.Equal(t, c.phase, state.Phase, c.answers)
		assert.Equal(t, c.message, state.Message, c.answers)
		assert.Len(t, state.Measurements, len(c.answers))
	}
}

func TestSpec11_14_AGateKeepsFiveMeasurements(t *testing.T) {
	gate := &outriggerv1.RolloutGate{Prometheus: &outriggerv1.PrometheusGate{Samples: 20}}
	var before, state protocol.GateState
	for i := range 7 {
		before, state = state, Record(gate, state, protocol.Measurement{Value: Format(float64(i)), Phase: protocol.GateSuccess, Time: time.Unix(int64(i), 0)})
	}
	assert.Len(t, state.Measurements, 5)
	assert.Equal(t, "2", state.Measurements[0].Value)
	assert.Equal(t, "1", before.Measurements[0].Value, "the state before is unchanged")
	assert.Equal(t, "6", Previous(state))
	assert.Equal(t, 20*time.Second, Wait(gate, state, time.Unix(46, 0)))
	assert.Zero(t, Wait(gate, state, time.Unix(70, 0)))
}

func TestSpec11_14_TheAnswerOfAWebhookDecides(t *testing.T) {
	gate := &outriggerv1.RolloutGate{Webhook: &outriggerv1.WebhookGate{Interval: &metav1.Duration{Duration: time.Hour}}}
	state := Record(gate, protocol.GateState{}, protocol.Measurement{Phase: protocol.GateRunning, Message: "3 of 4 checks"})
	assert.Equal(t, protocol.GateRunning, state.Phase)
	assert.Equal(t, "3 of 4 checks", state.Message)
	assert.Equal(t, time.Hour, Wait(gate, state, time.Time{}))
	assert.Equal(t, protocol.GateFailure, Record(gate, state, protocol.Measurement{Phase: protocol.GateFailure}).Phase)
}

func TestSpec11_14_ExpressionsJudgeAValue(t *testing.T) {
	for _, c := range []struct {
		success, failure string
		value            float64
		previous         string
		phase            protocol.GatePhase
	}{
		{"value < 0.05", "", 0.01, "", protocol.GateSuccess},
		{"value < 0.05", "", 0.2, "", protocol.GateFailure},
		{"value < 0.05", "value > 0.1", 0.07, "", protocol.GateInconclusive},
		{"value < 0.05", "value > 0.01", 0.02, "", protocol.GateInconclusive},
		{"value <= previous", "value > previous", 0.02, "", protocol.GateInconclusive},
		{"value <= previous", "value > previous", 0.02, "0.01", protocol.GateFailure},
		{"previous != previous || value <= previous", "", 0.02, "", protocol.GateSuccess},
		{"value < 0.1 * double(pods)", "", 0.2, "", protocol.GateSuccess},
		{"value < 1 && value > 0", "value >= 1", 0.2, "", protocol.GateSuccess},
		{"value < 1.0", "", math.NaN(), "", protocol.GateInconclusive},
		{"value < 1.0", "", math.Inf(-1), "", protocol.GateInconclusive},
	} {
		gate := &outriggerv1.PrometheusGate{Success: c.success, Failure: c.failure}
		assert.Equal(t, c.phase, Judge(gate, c.value, c.previous, 3).Phase, "%+v", c)
	}
}

func TestSpec11_14_AnInvalidExpressionNamesItsField(t *testing.T) {
	valid := outriggerv1.PrometheusGate{Query: `errors{revision="{{.Revision}}"}`, Success: "value < 1.0"}
	for _, c := range []struct {
		change func(*outriggerv1.PrometheusGate)
		says   string
	}{
		{func(*outriggerv1.PrometheusGate) {}, ""},
		{func(g *outriggerv1.PrometheusGate) { g.Success = "value <" }, `RolloutPolicy edge: gate errors: prometheus.success "value <": `},
		{func(g *outriggerv1.PrometheusGate) { g.Failure = "values > 1.0" }, `prometheus.failure "values > 1.0": `},
		{func(g *outriggerv1.PrometheusGate) { g.Failure = "value" }, errNoBool.Error()},
		{func(g *outriggerv1.PrometheusGate) { g.Query = "{{.Pod}}" }, `prometheus.query "{{.Pod}}": `},
		{func(g *outriggerv1.PrometheusGate) { g.Query = "{{" }, `prometheus.query "{{": `},
	} {
		changed := valid
		c.change(&changed)
		err := Check("edge", &outriggerv1.RolloutGate{Name: "errors", Prometheus: &changed})
		if c.says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.says)
	}
}

func TestSpec11_14_TheReasonNamesTheGateAndItsValue(t *testing.T) {
	s := &protocol.Stage{Steps: 2, Step: &protocol.Step{Name: "canary"}}
	assert.Equal(t, "gate errors of step 1 of 2 (canary) failed: 1 of 1 samples, 1 failed, last value 0.2",
		Reason(s.Title(), protocol.GateState{Name: "errors", Phase: protocol.GateFailure, Message: "1 of 1 samples, 1 failed, last value 0.2"}))
	assert.Equal(t, "gate errors of step 1 of 2 (canary) is inconclusive", Reason(s.Title(), protocol.GateState{Name: "errors", Phase: protocol.GateInconclusive}))
}

// While the webhook for policies is down, the API server stores any template. Therefore, workers also check
// templates.
func TestSpec11_14_ATemplateCannotOccupyAProcess(t *testing.T) {
	for query, accepted := range map[string]bool{
		`up{set="{{.SidecarSet}}"}`: true, `{{if .Step}}{{.Step | printf "%q"}}{{else}}{{/* all */}}x{{end}}`: true, `{{printf "%s-%d" .Revision .Generation}}`: true,
		`{{if and (eq .Step "a") (ne .Revision "b")}}x{{end}}`: true, `{{printf "100%% %s" .Step}}`: true,
		`{{printf "%1000000d" 1}}`: false, `{{printf "%[1]x%[1]x" .Step}}`: false, `{{printf "%*d" 1000000 1}}`: false, `{{printf "%q" .Step | printf "%q"}}`: false,
		`{{range 1000000000000}}x{{end}}`: false, `{{if .Step}}{{range 1000000000000}}{{end}}{{end}}`: false,
		`{{define "a"}}x{{template "a"}}{{end}}{{template "a"}}`: false, `{{with .Step}}{{.}}{{end}}`: false,
		`{{.Step | printf "%q" | printf "%q"}}`: false, `{{printf "%q" (printf "%q" .Step)}}`: false, `{{$x := .Step}}{{$x}}`: false,
	} {
		_, err := Render(query, Query{SidecarSet: "a", Revision: "b", Step: "c"})
		if accepted {
			require.NoError(t, err, query)
		} else {
			require.ErrorIs(t, err, errUnbounded, query)
		}
	}
}
