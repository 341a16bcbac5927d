package activities

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/gate"
)

// query measures a gate with a Prometheus query. If the response does not contain exactly one number, the
// measurement is inconclusive. If the provider is unavailable, query returns an error.
func (m *measurement) query(ctx context.Context, g *outriggerv1.PrometheusGate) (protocol.Measurement, error) {
	query, err := gate.Render(g.Query, gate.Query{SidecarSet: m.input.SidecarSet.Name, Revision: m.revision, Generation: m.input.Generation, Step: m.input.Step})
	if err != nil {
		return m.invalid("prometheus.query", g.Query, err), nil
	}
	form := strings.NewReader(url.Values{"query": {query}}.Encode())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(g.Address, "/")+"/api/v1/query", form)
	if err != nil {
		return m.invalid("prometheus.address", g.Address, withoutURL(err)), nil
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	status, body, err := m.send(ctx, request, g.Credentials)
	if err != nil {
		return protocol.Measurement{}, err
	}
	value, problem := numberOf(status, body)
	if problem != "" {
		return inconclusive(problem), nil
	}
	return gate.Judge(g, value, m.input.Previous, m.input.Pods), nil
}

// prometheusAnswer is the response of the Prometheus HTTP API to an instant query.
type prometheusAnswer struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// numberOf returns the number in a response of Prometheus. If the response has no number, problem is the reason.
func numberOf(status int, body []byte) (value float64, problem string) {
	var answer prometheusAnswer
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, fmt.Sprintf("the answer of Prometheus has the status %d, and is not JSON", status)
	}
	if answer.Status != "success" {
		return 0, fmt.Sprintf("Prometheus answers %d: %s", status, answer.Error)
	}
	var sample []any
	switch answer.Data.ResultType {
	case "scalar":
		if json.Unmarshal(answer.Data.Result, &sample) != nil {
			return 0, "the scalar of Prometheus is invalid"
		}
	case "vector":
		var series []struct {
			Value []any `json:"value"`
		}
		if json.Unmarshal(answer.Data.Result, &series) != nil {
			return 0, "the vector of Prometheus is invalid"
		}
		if len(series) == 0 {
			return 0, "the query has no data"
		}
		if len(series) > 1 {
			return 0, fmt.Sprintf("the query has %d series and not one", len(series))
		}
		sample = series[0].Value
	default:
		return 0, "the query has a result of type " + answer.Data.ResultType + " and not one number"
	}
	return parseSample(sample)
}

// parseSample returns the value of sample, which is a pair of a timestamp and a value. If sample is invalid,
// problem is the reason.
func parseSample(sample []any) (value float64, problem string) {
	if len(sample) == 2 {
		if text, ok := sample[1].(string); ok {
			if number, err := strconv.ParseFloat(text, 64); err == nil {
				return number, ""
			}
		}
	}
	return 0, "the value of Prometheus is not a number"
}
