package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// rollout measures a rollout. In the same run, it measures a baseline with the same pods.
type rollout struct {
	sizes
	hot      bool
	ready    time.Duration
	baseline bool
	rounds   int
	idle     int
}

func newRollout() *cobra.Command {
	b := &rollout{sizes: sizes{pods: 1000, sets: 1, workers: 1, window: "10%"}}
	cmd := subcommand("rollout", "Measure a rollout and a baseline", b)
	cmd.Flags().IntVar(&b.pods, "pods", b.pods, "number of pods")
	cmd.Flags().StringVar(&b.window, "window", b.window, "maxUnavailable: number or percent")
	cmd.Flags().IntVar(&b.workers, "workers", b.workers, "number of workers")
	cmd.Flags().BoolVar(&b.hot, "hot", false, "upgrade hot: two twins, two writes a pod")
	cmd.Flags().DurationVar(&b.ready, "ready-after", 0, "what a pod takes to become ready after a restart; 0 is as fast as simulated pods are")
	cmd.Flags().BoolVar(&b.baseline, "ideal", true, "measure the baseline before and after the rollout")
	cmd.Flags().IntVar(&b.rounds, "rounds", 3, "number of measurements with a baseline, each on a new cluster")
	cmd.Flags().IntVar(&b.idle, "idle-sets", 0, "number of SidecarSets without pods, in addition to the one that rolls out")
	return cmd
}

func (b *rollout) check() error {
	if b.rounds < 1 {
		return fmt.Errorf("--rounds %d: at least one", b.rounds)
	}
	return b.sizes.check()
}

func (b *rollout) run(ctx context.Context, out io.Writer) error {
	if !b.baseline {
		b.rounds = 1
	}
	var ratios []float64
	for range b.rounds {
		result, err := b.round(ctx)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(out, result.String()); err != nil {
			return err
		}
		ratios = append(ratios, result.timesBaseline())
	}
	if len(ratios) == 1 {
		return nil
	}
	slices.Sort(ratios)
	median := (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
	_, err := fmt.Fprintf(out, "times the baseline, median of %d rounds        %.2f\n", len(ratios), median)
	return err
}

// round measures once, on a new cluster. A cluster becomes slower over time, so the baseline is
// measured both before and after the rollout.
func (b *rollout) round(ctx context.Context) (*rolloutResult, error) {
	slots, err := b.slots()
	if err != nil {
		return nil, err
	}
	h, err := startHarness(ctx, b.pods)
	if err != nil {
		return nil, err
	}
	defer h.close()
	h.hot, h.readyAfter = b.hot, b.ready
	var before, after *baseline
	if b.baseline {
		if before, err = h.measureBaseline(ctx, "ideal-before", b.pods, slots); err != nil {
			return nil, fmt.Errorf("baseline: %w", err)
		}
	}
	result, err := b.measure(ctx, h, slots)
	if err != nil || !b.baseline {
		return result, err
	}
	if err := h.stopRoles(ctx); err != nil {
		return nil, err
	}
	if after, err = h.measureBaseline(ctx, "ideal-after", b.pods, slots); err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	result.before, result.after = before, after
	return result, nil
}

func (b *rollout) measure(ctx context.Context, h *harness, slots int) (*rolloutResult, error) {
	if err := h.startRoles(ctx, b.workers); err != nil {
		return nil, err
	}
	if err := h.populate(ctx, []*v1alpha1.SidecarSet{h.newSet("bench", fmt.Sprint(slots))}, b.pods); err != nil {
		return nil, err
	}
	if b.idle > 0 {
		if err := h.createSets(ctx, h.newSets("idle", b.idle, "1")); err != nil {
			return nil, err
		}
		h.idle = b.idle
	}
	rolled, err := h.rollOut(ctx)
	if err != nil {
		return nil, fmt.Errorf("rollout: %w", err)
	}
	end, err := h.sample(ctx)
	if err != nil {
		return nil, err
	}
	r := &rolloutResult{pods: b.pods, slots: slots, rolledOut: rolled, restarts: h.watched.View().AppRestarts, peak: end.peak}
	r.worst, _ = h.watched.Worst()
	id := protocol.WorkflowID(h.sets[0].Name, h.sets[0].UID)
	var ended protocol.RolloutResult
	if err := h.stack.Temporal.GetWorkflow(ctx, id, "").Get(ctx, &ended); err != nil {
		return nil, fmt.Errorf("read the result of the run: %w", err)
	}
	r.batches, r.actions.heartbeats = ended.Batches, int(r.heartbeats)
	return r, r.readHistory(ctx, h, id, "")
}

// rolloutResult is the result of one round.
type rolloutResult struct {
	*rolledOut
	pods, slots, worst int
	// before and after are nil without a baseline.
	before, after             *baseline
	batches, events, failures int
	actions                   actions
	restarts                  int32
	peak                      map[string]float64
}

// readHistory counts the events of a run, and the events of the runs that it continues as new.
func (r *rolloutResult) readHistory(ctx context.Context, h *harness, id, run string) error {
	continued := ""
	history := h.stack.Temporal.GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return fmt.Errorf("read the history: %w", err)
		}
		r.events++
		r.actions.count(event)
		if event.EventType == enums.EVENT_TYPE_WORKFLOW_TASK_FAILED {
			r.failures++
		}
		if started := event.GetWorkflowExecutionStartedEventAttributes(); started != nil {
			continued = started.ContinuedExecutionRunId
		}
	}
	if continued == "" {
		return nil
	}
	return r.readHistory(ctx, h, id, continued)
}

func (r *rolloutResult) String() string {
	var lines report
	lines.add("pods", "%d", r.pods)
	lines.add("window", "%d", r.slots)
	lines.seconds("seconds", r.took)
	if r.before != nil {
		lines.seconds("baseline before, seconds", r.before.took)
		lines.seconds("baseline after, seconds", r.after.took)
		lines.add("times the baseline", "%.2f", r.timesBaseline())
	}
	lines.add("most in flight at once", "%d", r.worst)
	lines.add("app containers restarted", "%d", r.restarts)
	lines.add("batches", "%d", r.batches)
	lines.add("history events", "%d", r.events)
	lines.add("history events a pod", "%.3f", float64(r.events)/float64(r.pods))
	lines.add("actions of Temporal Cloud", "%d", r.actions.total())
	lines.add("  of them heartbeats", "%d", r.actions.heartbeats)
	lines.add("  of them activities", "%d", r.actions.activities)
	lines.add("actions a pod", "%.3f", float64(r.actions.total())/float64(r.pods))
	lines.add("workflow task failures", "%d", r.failures)
	lines.each("API writes a pod", "%.3f", scaled(r.writes, 1/float64(r.pods)))
	lines.each("peak memory, MiB", "%.0f", r.peak)
	if r.before == nil {
		lines.each("processor seconds", "%.1f", r.processor)
	} else {
		lines.compare("processor seconds", "baseline", "%.1f", r.processor, r.before.processor, r.after.processor)
	}
	return lines.String()
}

// timesBaseline compares the rollout with the mean of both baselines.
func (r *rolloutResult) timesBaseline() float64 {
	if r.before == nil {
		return 0
	}
	return 2 * r.took.Seconds() / (r.before.took + r.after.took).Seconds()
}

// changeVersion is the search attribute of workflow versions. Temporal Cloud does not count its
// writes as actions.
const changeVersion = "TemporalChangeVersion"

// actions counts the billable actions of a run in Temporal Cloud
// (https://docs.temporal.io/cloud/actions). It contains only the kinds of actions that a rollout
// uses.
type actions struct {
	starts, signals, updates, timers, attributes, activities int
	// heartbeats counts heartbeats, which are not in the history.
	heartbeats int
}

func (a *actions) total() int {
	return a.starts + a.signals + a.updates + a.timers + a.attributes + a.activities + a.heartbeats
}

func (a *actions) count(event *history.HistoryEvent) {
	switch attributes := event.Attributes.(type) {
	case *history.HistoryEvent_WorkflowExecutionStartedEventAttributes:
		a.starts++
	case *history.HistoryEvent_WorkflowExecutionSignaledEventAttributes:
		a.signals++
	case *history.HistoryEvent_WorkflowExecutionUpdateAcceptedEventAttributes:
		a.updates++
	case *history.HistoryEvent_TimerStartedEventAttributes:
		a.timers++
	case *history.HistoryEvent_UpsertWorkflowSearchAttributesEventAttributes:
		fields := attributes.UpsertWorkflowSearchAttributesEventAttributes.GetSearchAttributes().GetIndexedFields()
		if !slices.Equal(slices.Collect(maps.Keys(fields)), []string{changeVersion}) {
			a.attributes++
		}
	case *history.HistoryEvent_ActivityTaskStartedEventAttributes:
		// The history contains an event only for the last attempt.
		a.activities += int(attributes.ActivityTaskStartedEventAttributes.Attempt)
	}
}
