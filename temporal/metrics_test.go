package temporal

import (
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheSDKsMetricsKeepFixedLabelsAndNamesWithUnits(t *testing.T) {
	registry := prometheus.NewRegistry()
	handler := NewMetricsHandler(registry)
	tagged := handler.WithTags(map[string]string{"operation": "Old", "namespace": "n"}).WithTags(map[string]string{"operation": "Poll", "workflow_id": "w-17"})
	tagged.Counter("temporal_request").Inc(2)
	tagged.Gauge("temporal_sticky_cache_size").Update(3)
	tagged.Timer("temporal_request_latency").Record(time.Second)
	tagged.Counter("temporal_nobody_knows").Inc(1)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP temporal_request_total Calls to Temporal.
# TYPE temporal_request_total counter
temporal_request_total{operation="Poll"} 2
# HELP temporal_sticky_cache_size Runs in the worker's cache.
# TYPE temporal_sticky_cache_size gauge
temporal_sticky_cache_size 3
`), "temporal_request_total", "temporal_sticky_cache_size", "temporal_nobody_knows_total"))
	count, err := testutil.GatherAndCount(registry, "temporal_request_latency_seconds")
	require.NoError(t, err)
	assert.Equal(t, 1, count)

	assert.Panics(t, func() { NewMetricsHandler(registry) }, "registered twice")
}

func TestTheClientWritesToTheHandler(t *testing.T) {
	handler := NewMetricsHandler(prometheus.NewRegistry())
	assert.Same(t, handler, Options{Metrics: handler}.sdk(logr.Discard()).MetricsHandler)
}
