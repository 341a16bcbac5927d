package kube

import "github.com/prometheus/client_golang/prometheus"

const watchDown = "outrigger_watch_down_seconds"

// Describe implements prometheus.Collector.
func (w *Watches) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- watchDownDesc() }

// Collect implements prometheus.Collector.
func (w *Watches) Collect(metrics chan<- prometheus.Metric) {
	description := watchDownDesc()
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, known := range w.types {
		down, _ := known.worst()
		metrics <- prometheus.MustNewConstMetric(description, prometheus.GaugeValue, down.Seconds(), known.kind)
	}
}

func watchDownDesc() *prometheus.Desc {
	return prometheus.NewDesc(watchDown,
		"For how long the API server has told this process of no changes to objects of a kind; 0 while it is watched.", []string{"kind"}, nil)
}
