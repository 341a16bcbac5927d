package activities

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
)

// measureWith makes one measurement with a provider that gives one answer.
func measureWith(t *testing.T, define func(url string) outriggerv1.RolloutGate, secret *corev1.Secret, answer http.HandlerFunc) (protocol.Measurement, error) {
	t.Helper()
	provider := httptest.NewServer(answer)
	t.Cleanup(provider.Close)
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(9))
	if secret != nil {
		require.NoError(t, cluster.Live.(client.Client).Create(t.Context(), secret))
	}
	cluster.GateClient, cluster.Clock = NewGateClient(), clock.RealClock{}
	env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
	env.RegisterActivity(cluster.MeasureGate)
	var measured protocol.Measurement
	result, err := env.ExecuteActivity(cluster.MeasureGate, protocol.MeasureGateInput{
		SidecarSet: webSetReference, Generation: 2, Policy: "edge", Step: "canary", Gate: define(provider.URL), Pods: 3,
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

func TestSpec11_14_AQueryNamesTheRollout(t *testing.T) {
	var query string
	_, err := measureWith(t, errorRate, nil, func(_ http.ResponseWriter, r *http.Request) { query = r.FormValue("query") })
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf(`errors{set="%s",step="canary",generation="2"}`, webSetReference.Name), query)
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
		"a token":    {map[string][]byte{"token": []byte("s3cret")}, "Bearer s3cret"},
		"a password": {map[string][]byte{"username": []byte("ann"), "password": []byte("s3cret")}, "Basic YW5uOnMzY3JldA=="},
		"no key":     {map[string][]byte{"user": []byte("s3cret")}, ""},
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

// A provider that does not answer in time is asked again.
func TestSpec11_14_AnAnswerThatIsLateIsAnError(t *testing.T) {
	_, err := measureWith(t, hook, nil, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // the server notices the end of the connection once the body is read
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
