// Package renamed keeps the former names of metrics, so that alerts and dashboards of users work after a release
// that renames a metric. A later release removes the former names.
package renamed

import "github.com/prometheus/client_golang/prometheus"

// Help returns the help text of the former name of a metric.
func Help(name string) string {
	return "Former name of " + name + "; a later release removes this name."
}

// Collector returns a collector that exports the metrics of current under their former name. name is the name, and
// labels are the labels, of the metrics of current.
func Collector(former, name string, current prometheus.Collector, labels ...string) prometheus.Collector {
	return &collector{current: current, desc: prometheus.NewDesc(former, Help(name), labels, nil)}
}

type collector struct {
	current prometheus.Collector
	desc    *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- c.desc }

// Collect implements prometheus.Collector.
func (c *collector) Collect(metrics chan<- prometheus.Metric) {
	current := make(chan prometheus.Metric)
	go func() {
		defer close(current)
		c.current.Collect(current)
	}()
	for one := range current {
		metrics <- metric{Metric: one, desc: c.desc}
	}
}

// metric is a metric of the current collector with the former name.
type metric struct {
	prometheus.Metric
	desc *prometheus.Desc
}

// Desc implements prometheus.Metric.
func (m metric) Desc() *prometheus.Desc { return m.desc }
