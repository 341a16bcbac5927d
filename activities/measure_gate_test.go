package activities

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// measureWith makes one measurement of the gate that define returns. answer handles the requests to the provider.
func measureWith(t *testing.T, define func(url string) outriggerv1.RolloutGate, secret *corev1.Secret, answer http.HandlerFunc) (protocol.Measurement, error) {
	t.Helper()
	provider := httptest.NewServer(answer)
	t.Cleanup(provider.Close)
	gate := define(provider.URL)
	return measureIn(t, outriggerv1.RolloutPolicySpec{Gates: []outriggerv1.RolloutGate{gate}}, gate, secret)
}

// measureIn makes one measurement of gate in a cluster with policy, and with secret unless secret is nil.
func measureIn(t *testing.T, policy outriggerv1.RolloutPolicySpec, gate outriggerv1.RolloutGate, secret *corev1.Secret) (protocol.Measurement, error) {
	t.Helper()
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9))
	require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), edgePolicy(policy)))
	if secret != nil {
		require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), secret))
	}
	cluster.GateClient, cluster.Clock = NewGateClient(), clock.RealClock{}
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(cluster.MeasureGate)
	var measured protocol.Measurement
	result, err := env.ExecuteActivity(cluster.MeasureGate, protocol.MeasureGateInput{
		SidecarSet: webSetReference, Generation: 2, Policy: "edge", Step: "canary", Gate: gate, Pods: 3,
	})
	if err == nil {
		err = result.Get(&measured)
	}
	return measured, err
}

func errorRate(url string) outriggerv1.RolloutGate {
	return outriggerv1.RolloutGate{Name: "errors", Prometheus: &outriggerv1.PrometheusGate{
		Address: url, Query: `errors{set="{{.SidecarSet}}",step="{{.Step}}",generation="{{.Generation}}"}`, Success: "value < 0.05", Failure: "value > 0.1",
	}}
}

func hook(url string) outriggerv1.RolloutGate {
	return outriggerv1.RolloutGate{Name: "checks", Webhook: &outriggerv1.WebhookGate{URL: url, Timeout: &metav1.Duration{Duration: time.Second}}}
}

func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestSpec11_14_AnAnswerOfPrometheusIsAMeasurement(t *testing.T) {
	vector := func(samples string) string {
		return `{"status":"success","data":{"resultType":"vector","result":[` + samples + `]}}`
	}
	for name, c := range map[string]struct {
		status int
		body   string
		want   protocol.Measurement
	}{
		"one series":     {200, vector(`{"metric":{},"value":[1,"0.02"]}`), protocol.Measurement{Value: "0.02", Phase: protocol.GateSuccess}},
		"a scalar":       {200, `{"status":"success","data":{"resultType":"scalar","result":[1,"0.5"]}}`, protocol.Measurement{Value: "0.5", Phase: protocol.GateFailure}},
		"no number":      {200, vector(`{"metric":{},"value":[1,"NaN"]}`), inconclusive("the value is NaN")},
		"no data":        {200, vector(""), inconclusive("the query has no data")},
		"two series":     {200, vector(`{"value":[1,"1"]},{"value":[1,"2"]}`), inconclusive("the query has 2 series and not one")},
		"a matrix":       {200, `{"status":"success","data":{"resultType":"matrix","result":[]}}`, inconclusive("the query has a result of type matrix and not one number")},
		"a wrong query":  {400, `{"status":"error","error":"parse error"}`, inconclusive("Prometheus answers 400: parse error")},
		"another server": {404, "not found", inconclusive("the answer of Prometheus has the status 404, and is not JSON")},
		"an empty value": {200, vector(`{"metric":{}}`), inconclusive("the value of Prometheus is not a number")},
	} {
		t.Run(name, func(t *testing.T) {
			measured, err := measureWith(t, errorRate, nil, answers(c.status, c.body))
			require.NoError(t, err)
			assert.Equal(t, c.want, measured)
		})
	}
	_, err := measureWith(t, errorRate, nil, answers(http.StatusServiceUnavailable, ""))
	require.ErrorContains(t, err, "RolloutPolicy edge: gate errors: ask http://127.0.0.1:")
	require.ErrorContains(t, err, "/api/v1/query: the answer is 503 Service Unavailable")
}

// If a measurement begins before the time at which the measurement is due, Temporal retries the measurement at
// this time.
func TestSpec11_14_AMeasurementWaitsUntilItIsDue(t *testing.T) {
	due := time.Date(2026, 11, 25, 12, 1, 0, 0, time.UTC)
	waits, ok := errors.AsType[*temporal.ApplicationError](notDue(due, due.Add(-time.Minute)))
	require.True(t, ok)
	assert.Equal(t, protocol.GateNotDue, waits.Type())
	assert.Equal(t, time.Minute, waits.NextRetryDelay())
	assert.False(t, waits.NonRetryable())
	require.NoError(t, notDue(due, due))
	require.NoError(t, notDue(time.Time{}, due))
}

func TestSpec11_14_AQueryNamesTheRollout(t *testing.T) {
	var query string
	_, err := measureWith(t, errorRate, nil, func(_ http.ResponseWriter, r *http.Request) { query = r.FormValue("query") })
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf(`errors{set="%s",step="canary",generation="2"}`, webSetReference.Name), query)
}

// Status may contain a gate that no policy has validated.
func TestSpec11_14_AnInvalidGateIsInconclusive(t *testing.T) {
	for says, change := range map[string]func(*outriggerv1.RolloutGate){
		`prometheus.query "{{.Pod}}": `:   func(g *outriggerv1.RolloutGate) { g.Prometheus.Query = "{{.Pod}}" },
		`prometheus.address "http://[": `: func(g *outriggerv1.RolloutGate) { g.Prometheus.Address = "http://[" },
		`success: `:                       func(g *outriggerv1.RolloutGate) { g.Prometheus.Success = "value <" },
		`webhook.url ":": `:               func(g *outriggerv1.RolloutGate) { *g = hook(":") },
		"does not know the kind":          func(g *outriggerv1.RolloutGate) { g.Prometheus = nil },
	} {
		define := func(url string) outriggerv1.RolloutGate {
			gate := errorRate(url)
			change(&gate)
			return gate
		}
		measured, err := measureWith(t, define, nil, answers(200, `{"status":"success","data":{"resultType":"scalar","result":[1,"0.5"]}}`))
		require.NoError(t, err, says)
		assert.Equal(t, protocol.GateInconclusive, measured.Phase, says)
		assert.Contains(t, measured.Message, says)
	}
}

// A user with the permission to write status could otherwise choose the address that receives the
// credentials.
func TestSpec11_14_CredentialsAreSentOnlyToTheAddressInThePolicy(t *testing.T) {
	asked := 0
	provider := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(provider.Close)
	credentials := &outriggerv1.GateCredentials{Name: "outrigger-gates"}
	named, asks := errorRate(provider.URL), hook(provider.URL)
	named.Prometheus.Credentials, asks.Webhook.Credentials = credentials, credentials
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "outrigger-gates", Namespace: "kruise-system"}, Data: map[string][]byte{"token": []byte("s3cret")}}
	for name, gates := range map[string]func(gate outriggerv1.RolloutGate) []outriggerv1.RolloutGate{
		"no gate": func(outriggerv1.RolloutGate) []outriggerv1.RolloutGate { return nil },
		"another name": func(g outriggerv1.RolloutGate) []outriggerv1.RolloutGate {
			g.Name = "other"
			return []outriggerv1.RolloutGate{g}
		},
		"another address": func(g outriggerv1.RolloutGate) []outriggerv1.RolloutGate {
			return []outriggerv1.RolloutGate{elsewhere(g)}
		},
		"another Secret": func(g outriggerv1.RolloutGate) []outriggerv1.RolloutGate {
			return []outriggerv1.RolloutGate{withSecret(g, "mine")}
		},
		"no Secret": func(g outriggerv1.RolloutGate) []outriggerv1.RolloutGate {
			return []outriggerv1.RolloutGate{withSecret(g, "")}
		},
	} {
		for _, gate := range []outriggerv1.RolloutGate{named, asks} {
			measured, err := measureIn(t, outriggerv1.RolloutPolicySpec{Gates: gates(*gate.DeepCopy())}, gate, secret.DeepCopy())
			require.NoError(t, err, name)
			assert.Equal(t, protocol.GateInconclusive, measured.Phase, name)
			assert.Contains(t, measured.Message, "the Secret outrigger-gates is not sent, because RolloutPolicy edge has no gate "+gate.Name, name)
		}
	}
	assert.Zero(t, asked)
}

func elsewhere(g outriggerv1.RolloutGate) outriggerv1.RolloutGate {
	if g.Prometheus != nil {
		g.Prometheus.Address += "0"
	} else {
		g.Webhook.URL += "0"
	}
	return g
}

func withSecret(g outriggerv1.RolloutGate, name string) outriggerv1.RolloutGate {
	credentials := &outriggerv1.GateCredentials{Name: name}
	if name == "" {
		credentials = nil
	}
	if g.Prometheus != nil {
		g.Prometheus.Credentials = credentials
	} else {
		g.Webhook.Credentials = credentials
	}
	return g
}

func TestSpec11_14_CredentialsAreInTheRequestAndInNoError(t *testing.T) {
	withCredentials := func(url string) outriggerv1.RolloutGate {
		gate := hook(url)
		gate.Webhook.Credentials = &outriggerv1.GateCredentials{Name: "outrigger-gates"}
		return gate
	}
	for name, c := range map[string]struct {
		data map[string][]byte
		want string
	}{
		"a token":             {map[string][]byte{"token": []byte("s3cret")}, "Bearer s3cret"},
		"a token from a file": {map[string][]byte{"token": []byte("s3cret\n")}, "Bearer s3cret"},
		"a password":          {map[string][]byte{"username": []byte("ann"), "password": []byte("s3cret")}, "Basic YW5uOnMzY3JldA=="},
		"no key":              {map[string][]byte{"user": []byte("s3cret")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "outrigger-gates", Namespace: "kruise-system"}, Data: c.data}
			var got string
			_, err := measureWith(t, withCredentials, secret, func(w http.ResponseWriter, r *http.Request) {
				got = r.Header.Get("Authorization")
				w.WriteHeader(http.StatusBadGateway)
			})
			require.Error(t, err)
			assert.NotContains(t, err.Error(), "s3cret")
			assert.Equal(t, c.want, got)
		})
	}
	_, err := measureWith(t, withCredentials, nil, answers(200, ""))
	require.ErrorContains(t, err, "read the credentials in Secret "+"kruise-system"+"/outrigger-gates")
}

func TestSpec11_14_AWebhookAnswersAQuestion(t *testing.T) {
	var asked map[string]any
	measured, err := measureWith(t, hook, nil, func(w http.ResponseWriter, r *http.Request) {
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&asked))
		answers(200, `{"phase":"Running","message":"2 of 3 checks"}`)(w, r)
	})
	require.NoError(t, err)
	assert.Equal(t, protocol.Measurement{Phase: protocol.GateRunning, Message: "2 of 3 checks"}, measured)
	assert.Equal(t, map[string]any{"sidecarSet": webSetReference.Name, "generation": 2.0, "revision": "logs-new", "step": "canary", "pods": 3.0}, asked)

	measured, err = measureWith(t, hook, nil, answers(200, `{"phase":"Maybe"}`))
	require.NoError(t, err)
	assert.Equal(t, inconclusive(`the answer has the unknown phase "Maybe"`), measured)
	measured, err = measureWith(t, hook, nil, answers(403, "no"))
	require.NoError(t, err)
	assert.Equal(t, inconclusive("the answer of the webhook has the status 403, and no phase"), measured)
}

// A request that times out is an error, so Temporal retries the measurement.
func TestSpec11_14_AnAnswerThatIsLateIsAnError(t *testing.T) {
	_, err := measureWith(t, hook, nil, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // the server detects the closed connection only after the body is read
		<-r.Context().Done()
	})
	require.ErrorContains(t, err, "context deadline exceeded")
}

func TestSpec11_14_AnInvalidGateStopsTheStartOfTheStep(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9), webPod("a"), webPod("b"))
	spec := outriggerv1.RolloutPolicySpec{Gates: []outriggerv1.RolloutGate{errorRate("http://p")}, Steps: []outriggerv1.RolloutStep{{Gates: []string{"errors"}}}}
	spec.Gates[0].Prometheus.Success = "value <"
	require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), edgePolicy(spec)))
	_, _, err := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Stages: true}).check(t.Context())
	require.ErrorContains(t, err, `RolloutPolicy edge: gate errors: prometheus.success "value <": `)
}
