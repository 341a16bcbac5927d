package watches

import "github.com/prometheus/client_golang/prometheus"

const watchDown = "outrigger_watch_down_seconds"

// Describe implements prometheus.Collector.
func (w *Watches) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- watchDownDesc() }

// Collect implements prometheus.Collector.
func (w *Watches) Collect(metrics chan<- prometheus.Metric) {
	description := watchDownDesc()
	w.mu.RLock()
	defer w.mu.RUnlock()
	for kind, watches := range w.kinds {
		down, _ := worst(watches)
		metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, down.Seconds(), kind)
	}
}

func watchDownDesc() *prometheus.Desc {
	return prometheus.NewDesc(watchDown,
		"Time since the watch of a kind of objects went down; 0 while it is up.", []string{"kind"}, nil)
}
