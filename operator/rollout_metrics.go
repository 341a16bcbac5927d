package operator

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/renamed"
)

// rolloutMetrics contains the values of each SidecarSet. Collect exports only totals over all SidecarSets,
// so that no metric has a label for each SidecarSet.
type rolloutMetrics struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	sets  map[string]rolloutMetric
}

// rolloutMetric contains the values that one SidecarSet adds to the totals.
type rolloutMetric struct {
	generation    int64
	phase         protocol.Phase
	paused        bool
	fault         string
	broken, slots int
	counts        protocol.Counts
	// changedAt is the time at which the generation, the counts of runCounts or the result of waits last
	// changed.
	changedAt time.Time
	// approvalSince is the time since which the rollout waits for an approval. approvalSince is zero if the
	// rollout does not wait for an approval.
	approvalSince time.Time
}

func newRolloutMetrics(clock clock.PassiveClock) *rolloutMetrics {
	return &rolloutMetrics{clock: clock, sets: map[string]rolloutMetric{}}
}

// observe replaces the values of a SidecarSet.
func (m *rolloutMetrics) observe(set *v1alpha1.SidecarSet, seen *observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.sets[set.Name]
	now := rolloutMetric{
		generation: set.Generation, phase: seen.plan.Phase, paused: seen.pause != nil, fault: seen.fault.Reason,
		broken: seen.broken.Count, slots: seen.plan.MaxUnavailable, counts: seen.plan.Counts, changedAt: before.changedAt,
	}
	if s := stage.OfStatus(set); s != nil && now.phase == protocol.PhaseStepReached {
		if phase, _ := s.Wait(m.clock.Now()); phase == protocol.PhaseAwaitingApproval {
			now.approvalSince = s.ApprovalSince()
		}
	}
	if !known || now.generation != before.generation || runCounts(now.counts) != runCounts(before.counts) || now.waits() != before.waits() {
		now.changedAt = m.clock.Now()
	}
	m.sets[set.Name] = now
}

func (m *rolloutMetrics) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sets, name)
}

// waits reports whether the rollout is in progress and not paused.
func (m *rolloutMetric) waits() bool {
	return !m.paused && (m.phase == protocol.PhaseProgressing || m.phase == protocol.PhaseWaiting)
}

// Describe implements prometheus.Collector.
func (m *rolloutMetrics) Describe(descriptions chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(m, descriptions)
}

// Collect implements prometheus.Collector.
func (m *rolloutMetrics) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(name, help string, value float64) {
		metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, value)
	}
	gauges := func(name, help, label string, counts map[string]int) {
		desc := prometheus.NewDesc(name, help, []string{label}, nil)
		for of, count := range counts {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(count), of)
		}
	}
	t := m.totals()
	gauges("outrigger_rollouts", "SidecarSets by the phase of their rollout (SPEC §8).", "phase", t.phases)
	gauge("outrigger_rollouts_paused", "SidecarSets whose run is paused by signal.", float64(t.paused))
	gauge("outrigger_rollouts_held", renamed.Help("outrigger_rollouts_paused"), float64(t.paused))
	gauges("outrigger_rollouts_faulted", "SidecarSets whose run makes no progress because of the workers or a missing payload key, by the reason of Degraded.", "reason", t.faults)
	gauges("outrigger_rollout_pods", "Pods of all SidecarSets, by state. A pod of two SidecarSets counts twice. Pods in state in_flight are unavailable because of an upgrade. Pods in state broken have a sidecar that cannot start.", "state", map[string]int{
		"matched": t.counts.Matched, "updated": t.counts.Updated, "ready": t.counts.Ready, "updated_ready": t.counts.UpdatedReady,
		"remaining": t.counts.Remaining, "not_upgradable": t.counts.NotUpgradable, "in_flight": t.counts.Unavailable, "broken": t.broken,
	})
	gauge("outrigger_rollout_max_unavailable_pods", "Pods that all rollouts in progress together may make unavailable at once.", float64(t.slots))
	gauge("outrigger_rollout_window_pods", renamed.Help("outrigger_rollout_max_unavailable_pods"), float64(t.slots))
	gauge("outrigger_rollout_stalled_seconds", "Longest time since the last progress of a rollout, over all rollouts with pods left to upgrade or to become ready, or 0 if all rollouts have ended. Paused rollouts do not count.", t.stalled.Seconds())
	gauge("outrigger_rollout_approval_wait_seconds", "Longest time that a rollout has been waiting for an approval, or 0 if no rollout waits for an approval.", t.approval.Seconds())
}

type rolloutTotals struct {
	phases, faults        map[string]int
	paused, broken, slots int
	counts                protocol.Counts
	stalled, approval     time.Duration
}

func (m *rolloutMetrics) totals() rolloutTotals {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, now := rolloutTotals{phases: map[string]int{}, faults: map[string]int{}}, m.clock.Now()
	for _, set := range m.sets {
		t.phases[string(set.phase)]++
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
		if !set.approvalSince.IsZero() {
			t.approval = max(t.approval, now.Sub(set.approvalSince))
		}
		if set.waits() {
			t.slots += set.slots
			t.stalled = max(t.stalled, now.Sub(set.changedAt))
		}
	}
	t.phases = only(t.phases, protocol.PhaseProgressing, protocol.PhaseWaiting, protocol.PhaseStepReached, protocol.PhasePaused, protocol.PhaseFrozen, protocol.PhaseQuarantined, protocol.PhaseComplete, protocol.PhasePartitionReached, protocol.PhaseNotUpdate)
	t.faults = only(t.faults, v1alpha1.ReasonWorkerUnavailable, v1alpha1.ReasonRolloutFailing, v1alpha1.ReasonRunUnreadable)
	return t
}

// only returns a map with the counts of the given keys. A missing count is zero.
func only[Key ~string](counts map[string]int, keys ...Key) map[string]int {
	found := map[string]int{}
	for _, key := range keys {
		found[string(key)] = counts[string(key)]
	}
	return found
}
