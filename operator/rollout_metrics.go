package operator

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// rolloutMetrics are totals over all SidecarSets, calculated when they are collected, so
// that no metric has a label per SidecarSet.
type rolloutMetrics struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	sets  map[string]rolloutMetric
	descs rolloutDescs
}

// rolloutMetric is what the totals need of one SidecarSet.
type rolloutMetric struct {
	generation    int64
	phase         protocol.Phase
	paused        bool
	fault         string
	broken, slots int
	counts        protocol.Counts
	// changedAt is when generation or counts were first observed as they are.
	changedAt time.Time
}

type rolloutDescs struct{ rollouts, held, faulted, pods, window, stalled *prometheus.Desc }

func newRolloutMetrics(clock clock.PassiveClock) *rolloutMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &rolloutMetrics{clock: clock, sets: map[string]rolloutMetric{}, descs: rolloutDescs{
		rollouts: desc("outrigger_rollouts", "SidecarSets by the phase of their rollout (SPEC §8).", "phase"),
		held:     desc("outrigger_rollouts_held", "SidecarSets whose run is paused by signal."),
		faulted:  desc("outrigger_rollouts_faulted", "SidecarSets whose run makes no progress because of the workers or a missing payload key, by the reason of Degraded.", "reason"),
		pods:     desc("outrigger_rollout_pods", "Pods of all SidecarSets, once for each set, by state; in_flight ones are unavailable because of an upgrade, broken ones have a sidecar that cannot start.", "state"),
		window:   desc("outrigger_rollout_window_pods", "Pods that all rollouts in progress together may make unavailable at once."),
		stalled:  desc("outrigger_rollout_stalled_seconds", "Time since the counts of a rollout changed, for the rollout that has waited longest with pods left to upgrade or to become ready; 0 without any. Paused rollouts do not count."),
	}}
}

// observe replaces what is known of a SidecarSet.
func (m *rolloutMetrics) observe(set *v1alpha1.SidecarSet, seen *observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.sets[set.Name]
	now := rolloutMetric{
		generation: set.Generation, phase: seen.plan.Phase, paused: seen.pause != nil, fault: seen.fault.Reason,
		broken: seen.broken.count, slots: seen.plan.MaxUnavailable, counts: seen.plan.Counts, changedAt: before.changedAt,
	}
	if !known || now.generation != before.generation || now.counts != before.counts || now.waits() != before.waits() {
		now.changedAt = m.clock.Now()
	}
	m.sets[set.Name] = now
}

func (m *rolloutMetrics) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sets, name)
}

// waits reports whether the rollout continues without a resume.
func (m *rolloutMetric) waits() bool {
	return !m.paused && (m.phase == protocol.PhaseProgressing || m.phase == protocol.PhaseWaiting)
}

// Describe implements prometheus.Collector.
func (m *rolloutMetrics) Describe(descriptions chan<- *prometheus.Desc) {
	d := m.descs
	for _, one := range []*prometheus.Desc{d.rollouts, d.held, d.faulted, d.pods, d.window, d.stalled} {
		descriptions <- one
	}
}

// Collect implements prometheus.Collector.
func (m *rolloutMetrics) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	t := m.totals()
	for _, phase := range phases() {
		gauge(m.descs.rollouts, float64(t.phases[phase]), string(phase))
	}
	for _, reason := range faultReasons() {
		gauge(m.descs.faulted, float64(t.faults[reason]), reason)
	}
	gauge(m.descs.held, float64(t.paused))
	gauge(m.descs.window, float64(t.slots))
	gauge(m.descs.stalled, t.stalled.Seconds())
	for state, count := range map[string]int{
		"matched": t.counts.Matched, "updated": t.counts.Updated, "ready": t.counts.Ready, "updated_ready": t.counts.UpdatedReady,
		"remaining": t.counts.Remaining, "not_upgradable": t.counts.NotUpgradable, "in_flight": t.counts.Unavailable, "broken": t.broken,
	} {
		gauge(m.descs.pods, float64(count), state)
	}
}

// phases are those that a SidecarSet can be in.
func phases() []protocol.Phase {
	return []protocol.Phase{
		protocol.PhaseProgressing, protocol.PhaseWaiting, protocol.PhasePaused,
		protocol.PhaseComplete, protocol.PhasePartitionReached, protocol.PhaseNotUpdate,
	}
}

func faultReasons() []string {
	return []string{v1alpha1.ReasonWorkerUnavailable, v1alpha1.ReasonRolloutFailing, v1alpha1.ReasonRunUnreadable}
}

type rolloutTotals struct {
	phases                map[protocol.Phase]int
	faults                map[string]int
	paused, broken, slots int
	counts                protocol.Counts
	stalled               time.Duration
}

func (m *rolloutMetrics) totals() rolloutTotals {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, now := rolloutTotals{phases: map[protocol.Phase]int{}, faults: map[string]int{}}, m.clock.Now()
	for _, set := range m.sets {
		t.phases[set.phase]++
		t.faults[set.fault]++
		t.broken += set.broken
		t.counts.Matched += set.counts.Matched
		t.counts.Updated += set.counts.Updated
		t.counts.Ready += set.counts.Ready
		t.counts.UpdatedReady += set.counts.UpdatedReady
		t.counts.Remaining += set.counts.Remaining
		t.counts.NotUpgradable += set.counts.NotUpgradable
		t.counts.Unavailable += set.counts.Unavailable
		if set.paused {
			t.paused++
		}
		if set.waits() {
			t.slots += set.slots
			t.stalled = max(t.stalled, now.Sub(set.changedAt))
		}
	}
	return t
}
