package renamed

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestAFormerNameHasTheValuesOfTheMetric(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	starts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "starts_total", Help: "Starts."}, []string{"result"})
	registry.MustRegister(starts, Collector("handovers_total", "starts_total", starts, "result"))
	starts.WithLabelValues("ok").Add(2)
	starts.WithLabelValues("error").Inc()
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP handovers_total Former name of starts_total; a later release removes this name.
# TYPE handovers_total counter
handovers_total{result="error"} 1
handovers_total{result="ok"} 2
# HELP starts_total Starts.
# TYPE starts_total counter
starts_total{result="error"} 1
starts_total{result="ok"} 2
`)))
}
