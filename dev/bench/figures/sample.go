package figures

import (
	"context"
	"fmt"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/outrigger/outrigger/dev/cluster"
)

// Sample is what the processes of a cluster have used so far, or between two samples.
type Sample struct {
	// At is zero in a difference, and Took in a sample.
	At   time.Time
	Took time.Duration
	// Processor is the processor time of each process, in seconds.
	Processor map[string]float64
	// Writes and Reads are requests of each role to the API server. A watch that is
	// opened counts as a read.
	Writes, Reads map[string]float64
	// TemporalRequests are the roles' calls to Temporal without long polls; without
	// those that do not call it.
	TemporalRequests map[string]float64
	// Heartbeats are what Temporal's frontend was sent of activities.
	Heartbeats float64
}

// Take reads what the processes of the cluster have used so far.
func Take(ctx context.Context, stack *cluster.Cluster) (Sample, error) {
	s := Sample{Writes: map[string]float64{}, Reads: map[string]float64{}, TemporalRequests: map[string]float64{}}
	for _, role := range stack.Roles() {
		families, err := scrape(ctx, role.Metrics)
		if err != nil {
			return s, fmt.Errorf("read the metrics of %s: %w", role.Name, err)
		}
		s.Writes[role.Name], s.Reads[role.Name] = 0, 0
		for _, metric := range families["rest_client_requests_total"].GetMetric() {
			switch method(metric) {
			case http.MethodGet:
				s.Reads[role.Name] += metric.GetCounter().GetValue()
			case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
				s.Writes[role.Name] += metric.GetCounter().GetValue()
			}
		}
		for _, metric := range families["temporal_request_total"].GetMetric() {
			s.TemporalRequests[role.Name] += metric.GetCounter().GetValue()
		}
	}
	families, err := scrape(ctx, stack.TemporalMetrics)
	if err != nil {
		return s, fmt.Errorf("read the metrics of Temporal: %w", err)
	}
	for _, metric := range families["service_requests"].GetMetric() {
		if isHeartbeat(metric) {
			s.Heartbeats += metric.GetCounter().GetValue()
		}
	}
	processor, err := ProcessorSeconds(stack)
	s.Processor, s.At = processor, time.Now()
	return s, err
}

// Since is what was used since an earlier sample.
func (s Sample) Since(before Sample) Sample {
	return Sample{
		Took:             s.At.Sub(before.At),
		Processor:        Difference(before.Processor, s.Processor),
		Writes:           Difference(before.Writes, s.Writes),
		Reads:            Difference(before.Reads, s.Reads),
		TemporalRequests: Difference(before.TemporalRequests, s.TemporalRequests),
		Heartbeats:       s.Heartbeats - before.Heartbeats,
	}
}

// isHeartbeat tells the frontend's count from that of history, to which it passes them on.
func isHeartbeat(metric *dto.Metric) bool {
	labels := map[string]string{}
	for _, label := range metric.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	return labels["operation"] == "RecordActivityTaskHeartbeat" && labels["service_name"] == "frontend"
}

func method(metric *dto.Metric) string {
	for _, label := range metric.GetLabel() {
		if label.GetName() == "method" {
			return label.GetValue()
		}
	}
	return ""
}

func scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}
