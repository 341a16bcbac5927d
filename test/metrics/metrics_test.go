package metrics

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outrigger/outrigger/activities"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/operator"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/webhook/pods"
	"github.com/outrigger/outrigger/webhook/registration"
	"github.com/outrigger/outrigger/webhook/server"
)

const (
	page       = "../../docs/metrics.md"
	monitoring = "../../config/monitoring/"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// metric is one as the page has it.
type metric struct {
	name, kind, help string
	labels, roles    []string
}

// recorder is a Registerer that keeps what is registered with it.
type recorder struct {
	prometheus.Registerer
	t       *testing.T
	role    string
	metrics map[string]*metric
}

var description = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), unit: "", constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)

// Register implements prometheus.Registerer.
func (r *recorder) Register(collector prometheus.Collector) error {
	found := make(chan *prometheus.Desc)
	go func() {
		collector.Describe(found)
		close(found)
	}()
	for desc := range found {
		parts := description.FindStringSubmatch(desc.String())
		require.NotNil(r.t, parts, "%s", desc)
		one := r.metrics[parts[1]]
		if one == nil {
			one = &metric{name: parts[1], kind: kindOf(collector), help: unquote(r.t, parts[2])}
			if parts[3] != "" {
				one.labels = strings.Split(parts[3], ",")
			}
			r.metrics[parts[1]] = one
		}
		one.roles = append(one.roles, r.role)
	}
	return nil
}

func unquote(t *testing.T, quoted string) string {
	var text string
	require.NoError(t, json.Unmarshal([]byte(quoted), &text))
	return text
}

// kindOf says gauge of collectors of our own: they are nothing else.
func kindOf(collector prometheus.Collector) string {
	switch collector.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	case prometheus.Gauge:
		return "gauge"
	case prometheus.Counter:
		return "counter"
	}
	return "gauge"
}

// registered are the metrics that the roles register, by name.
func registered(t *testing.T) map[string]*metric {
	t.Helper()
	all := map[string]*metric{}
	as := func(role string) *recorder { return &recorder{t: t, role: role, metrics: all} }
	sdk := func(role string) {
		_, err := temporal.NewMetricsHandler(as(role))
		require.NoError(t, err)
	}
	for _, role := range []string{"operator", "webhook", "worker"} {
		require.NoError(t, as(role).Register(&kube.Watches{}))
	}
	require.NoError(t, operator.RegisterMetrics(as("operator")))
	sdk("operator")
	_, err := activities.NewMetrics(as("worker"))
	require.NoError(t, err)
	sdk("worker")
	_, err = pods.New(pods.Options{Registerer: as("webhook")})
	require.NoError(t, err)
	_, err = server.New(server.Options{Registerer: as("webhook")})
	require.NoError(t, err)
	require.NoError(t, as("webhook").Register((&registration.Reconciler{}).Collector()))
	return all
}

const head = `# Metrics

Each role serves them at ` + "`/metrics`" + ` (` + "`--metrics-bind-address`" + `). ` + "`config/monitoring`" + ` has a PodMonitor, alerts and a
dashboard for the Prometheus operator: ` + "`kubectl apply -k config/monitoring`" + `. The page is written by
` + "`go test ./test/metrics -update`" + ` from what the roles register.

No label grows with pods. What is labelled by set goes with the set; the rollouts are totals over all sets. Only the
operator that leads knows rollouts and Temporal, so take the maximum over replicas.

`

const foot = `
## From libraries

These come with controller-runtime, client-go and the Go runtime, and are not repeated under other names:

| name | type | labels | role | says |
|---|---|---|---|---|
| ` + "`workqueue_depth`" + ` | gauge | ` + "`name`" + `, ` + "`controller`" + `, ` + "`priority`" + ` | operator, webhook | sets that wait to be looked at |
| ` + "`workqueue_queue_duration_seconds`" + ` | histogram | ` + "`name`" + `, ` + "`controller`" + ` | operator, webhook | how long they waited |
| ` + "`workqueue_work_duration_seconds`" + ` | histogram | ` + "`name`" + `, ` + "`controller`" + ` | operator, webhook | how long looking took |
| ` + "`controller_runtime_reconcile_errors_total`" + ` | counter | ` + "`controller`" + ` | operator, webhook | looks that failed |
| ` + "`rest_client_requests_total`" + ` | counter | ` + "`code`" + `, ` + "`method`" + `, ` + "`host`" + ` | all | requests to the API server |
| ` + "`process_resident_memory_bytes`" + ` | gauge | | all | memory of the process |
`

func write(all map[string]*metric) string {
	var text strings.Builder
	text.WriteString(head)
	section := func(title, prefix string) {
		fmt.Fprintf(&text, "## %s\n\n| name | type | labels | role | says |\n|---|---|---|---|---|\n", title)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			m := all[name]
			var labels strings.Builder
			for i, label := range m.labels {
				if i > 0 {
					labels.WriteString(",")
				}
				fmt.Fprintf(&labels, " `%s`", label)
			}
			fmt.Fprintf(&text, "| `%s` | %s |%s | %s | %s |\n", m.name, m.kind, labels.String(), strings.Join(slices.Compact(slices.Sorted(slices.Values(m.roles))), ", "), m.help)
		}
	}
	section("Outrigger", "outrigger_")
	text.WriteString("\n")
	section("Temporal's SDK", "temporal_")
	text.WriteString(foot)
	return text.String()
}

func TestThePageIsWhatTheRolesRegister(t *testing.T) {
	want := write(registered(t))
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(want), 0o644))
	}
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, want, string(have), "run go test ./test/metrics -update")
}

func TestMetricsAreNamedAsIsCustomary(t *testing.T) {
	for name, m := range registered(t) {
		assert.Equal(t, m.kind == "counter", strings.HasSuffix(name, "_total"), name)
		assert.Regexp(t, `^(outrigger|temporal)_`, name)
		assert.NotEmpty(t, m.help, name)
		for _, label := range m.labels {
			assert.NotContains(t, []string{"pod", "namespace", "uid", "workflow_id", "run_id"}, label, name)
		}
	}
}
