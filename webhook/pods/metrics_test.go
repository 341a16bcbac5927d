package pods

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/internal/fixture"
)

func valueOf(t *testing.T, counter prometheus.Counter) float64 {
	t.Helper()
	var metric dto.Metric
	require.NoError(t, counter.Write(&metric))
	return metric.GetCounter().GetValue()
}

// admissions returns all series of outrigger_admissions_total, by result and SidecarSet.
func admissions(t *testing.T, m *metrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(m.admissions))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1)
	series := map[string]float64{}
	for _, metric := range families[0].GetMetric() {
		// Labels are sorted by name: result, sidecarset.
		series[metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue()] = metric.GetCounter().GetValue()
	}
	return series
}

func TestAdmissionsAreCountedBySetAndResult(t *testing.T) {
	plain := fixture.SidecarSet("plain", fixture.Sidecar("one"), fixture.Sidecar("two"))
	paused := fixture.SidecarSet("paused", fixture.Sidecar("three"))
	paused.Spec.InjectionStrategy.Paused = true
	broken := fixture.SidecarSet("broken", fixture.Sidecar("four", unparsable))
	broken.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"broken": "yes"}}
	lost := inProduction("lost")
	lost.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"lost": "yes"}}
	handler := handlerFor(t, interceptor.Funcs{}, nil, plain, paused, broken, lost)
	pod := fixture.Pod(fixture.Container("app"))
	for _, labels := range []map[string]string{
		{"app": "web"}, {"app": "web"}, {"app": "web", "broken": "yes"}, {"app": "other"}, {"lost": "yes"},
	} {
		pod.Labels = labels
		admitted(t, handler, pod)
	}
	pod.Labels = map[string]string{"app": "web"}
	pod.Annotations = map[string]string{"kruise.io/sidecarset-hash": "{"}
	admitted(t, handler, pod)
	assert.Equal(t, map[string]float64{
		"injected plain": 2, "refused plain": 0, "injected paused": 0, "refused paused": 0, "injected broken": 0, "refused broken": 1,
		"injected lost": 0, "refused lost": 1, "unmatched ": 1, "refused ": 1,
	}, admissions(t, handler.metrics))
	assert.Equal(t, 4.0, valueOf(t, handler.metrics.containers))
	var duration dto.Metric
	require.NoError(t, handler.metrics.duration.Write(&duration))
	assert.Equal(t, uint64(6), duration.GetHistogram().GetSampleCount())
}

func TestTheSeriesOfADeletedSetAreNotRecreated(t *testing.T) {
	handler := handlerFor(t, interceptor.Funcs{}, nil, fixture.SidecarSet("s", fixture.Sidecar("side")))
	index := handler.sets.informed
	onItsWay := index.matching(map[string]string{"app": "web"})
	require.Len(t, onItsWay, 1)
	index.remove("s")
	onItsWay[0].metrics.injected.Inc()
	assert.Equal(t, map[string]float64{"unmatched ": 0, "refused ": 0}, admissions(t, handler.metrics))
}
