package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/observer"
)

// bench measures the creation of SidecarSets, the simultaneous rollouts of these SidecarSets, and the
// resources that the roles use afterwards. In the same round, bench measures a baseline with the same pods.
type bench struct {
	// pods is the number of pods of all SidecarSets together.
	pods, sets, workers int
	// idle is the number of SidecarSets without pods, in addition to sets.
	idle int
	// window is the maxUnavailable of each SidecarSet.
	window             string
	maxUnavailablePods int
	hot                bool
	// perNamespace is true if each SidecarSet selects the pods of a separate namespace.
	perNamespace bool
	// upgrades is true if the benchmark upgrades the pods.
	upgrades bool
	// events is the number of pod events per second during the measurement at rest.
	events   int
	baseline bool
	rounds   int
	// ready is the time from the restart of a container until the pod is ready. rest is the duration of the
	// measurement at rest, after the rollouts.
	ready, rest time.Duration
}

// settle is the pause between the end of the rollouts and the measurement at rest.
const settle = 20 * time.Second

func (b *bench) run(ctx context.Context, out io.Writer) error {
	if !b.baseline {
		b.rounds = 1
	}
	var ratios []float64
	for range b.rounds {
		ratio, err := b.round(ctx, out)
		if err != nil {
			return err
		}
		ratios = append(ratios, ratio)
	}
	if len(ratios) == 1 {
		return nil
	}
	slices.Sort(ratios)
	median := (ratios[(len(ratios)-1)/2] + ratios[len(ratios)/2]) / 2
	_, err := fmt.Fprintf(out, "times the baseline, median of %d rounds        %.2f\n", len(ratios), median)
	return err
}

// round measures once, on a new cluster. A cluster becomes slower over time, so the baseline is measured both
// before and after the rollout. ratio is the time of the rollout divided by the mean time of the two
// baselines, or 0 without a baseline.
func (b *bench) round(ctx context.Context, out io.Writer) (ratio float64, err error) {
	h, err := startHarness(ctx, b)
	if err != nil {
		return 0, err
	}
	defer h.close()
	var before *baseline
	if b.baseline {
		if before, err = h.measureBaseline(ctx, "ideal-before"); err != nil {
			return 0, fmt.Errorf("baseline: %w", err)
		}
	}
	if err := h.measure(ctx); err != nil {
		return 0, err
	}
	if b.baseline {
		if err := h.stopRoles(ctx); err != nil {
			return 0, err
		}
		after, err := h.measureBaseline(ctx, "ideal-after")
		if err != nil {
			return 0, fmt.Errorf("baseline: %w", err)
		}
		ratio = 2 * h.took.Seconds() / (before.took + after.took).Seconds()
		h.lines.seconds("baseline before, seconds", before.took)
		h.lines.seconds("baseline after, seconds", after.took)
		h.lines.add("times the baseline", "%.2f", ratio)
		h.lines.each("baseline before, processor seconds", "%.1f", before.processor, 1)
		h.lines.each("baseline after, processor seconds", "%.1f", after.processor, 1)
	}
	// A high number of failed requests means that the machine is overloaded.
	h.lines.add("requests for sets that failed and were repeated", "%d", h.failed.Load())
	if _, err := io.WriteString(out, h.lines.String()); err != nil {
		return 0, err
	}
	if worst, event := h.watched.Worst(); b.maxUnavailablePods > 0 && worst > b.maxUnavailablePods {
		return 0, fmt.Errorf("%d pods were in flight at once (%s), more than --max-unavailable-pods %d", worst, event, b.maxUnavailablePods)
	}
	return ratio, nil
}

func (h *harness) measure(ctx context.Context) error {
	if err := h.startRoles(ctx); err != nil {
		return err
	}
	h.lines.add("sets", "%d", h.bench.sets)
	h.lines.add("pods", "%d", h.bench.pods)
	h.lines.add("window", "%s", h.window)
	if err := h.create(ctx); err != nil {
		return err
	}
	if h.bench.pods > 0 {
		if err := h.createPods(ctx); err != nil {
			return err
		}
	}
	if h.bench.pods > 0 && h.upgrades {
		if err := h.rollOut(ctx); err != nil {
			return fmt.Errorf("rollout: %w", err)
		}
	}
	if h.rest > 0 {
		return h.measureRest(ctx)
	}
	return nil
}

// create measures the creation of the SidecarSets, which have no pods yet.
func (h *harness) create(ctx context.Context) error {
	before, err := h.sample(ctx)
	if err != nil {
		return err
	}
	h.sets = h.newSets("set", h.bench.sets, h.window)
	all := slices.Concat(h.sets, h.newSets("idle", h.idle, "1"))
	for _, phase := range []struct {
		name  string
		await func() error
	}{
		{"until all are accepted, seconds", func() error {
			return h.eachSet(ctx, all, func(ctx context.Context, set *v1alpha1.SidecarSet) error { return h.stack.Kube.Create(ctx, set) })
		}},
		{"until all are observed, seconds", func() error { return h.awaitObserved(ctx, len(all)) }},
		{"until all runs have ended, seconds", func() error { return h.awaitEnd(ctx) }},
	} {
		if err := phase.await(); err != nil {
			return err
		}
		h.lines.seconds(phase.name, time.Since(before.at))
	}
	after, err := h.sample(ctx)
	if err != nil {
		return err
	}
	used, each := after.since(before), 1/float64(len(all))
	h.lines.each("processor milliseconds a set", "%.1f", used[processor], 1000*each)
	h.lines.each("API writes a set", "%.2f", used[writes], each)
	h.lines.each("calls to Temporal a set", "%.2f", used[calls], each)
	h.progress("SidecarSets are created")
	return nil
}

// rollOut changes the image of all SidecarSets, and returns once the runs have ended. The values that rollOut
// reports cover the time until all pods run the image.
func (h *harness) rollOut(ctx context.Context) error {
	before, err := h.sample(ctx)
	if err != nil {
		return err
	}
	if err := h.changeImage(ctx); err != nil {
		return err
	}
	view, err := h.watched.Await(ctx, observer.Converged(h.pods))
	if err != nil {
		return err
	}
	h.took = time.Since(before.at)
	after, err := h.sample(ctx)
	if err != nil {
		return err
	}
	h.progress(image(2) + " is rolled out")
	if err := h.awaitEnd(ctx); err != nil {
		return err
	}
	worst, _ := h.watched.Worst()
	_, served := h.watched.Updates()
	h.lines.seconds("seconds", h.took)
	for _, percent := range []int{50, 100} {
		reached := reachedBySet(served, before.at, h.pods/len(h.sets), percent)
		if len(reached) == 0 {
			return fmt.Errorf("no SidecarSet has %d %% of its pods upgraded", percent)
		}
		for i, name := range []string{"first set", "median set", "last set"} {
			h.lines.seconds(fmt.Sprintf("until %d %%, %s, seconds", percent, name), reached[i*(len(reached)-1)/2])
		}
	}
	used, each := after.since(before), 1/float64(h.pods)
	h.lines.add("most in flight at once", "%d", worst)
	h.lines.add("app containers restarted", "%d", view.AppRestarts)
	h.lines.each("API writes a pod", "%.3f", used[writes], each)
	h.lines.each("calls to Temporal a pod", "%.3f", used[calls], each)
	h.lines.each("peak memory, MiB", "%.0f", after.of[peak], 1)
	h.lines.each("processor seconds", "%.1f", used[processor], 1)
	h.lines.each("processor milliseconds a pod", "%.2f", used[processor], 1000*each)
	return h.addHistories(ctx, int(used[heartbeats][cluster.Temporal]))
}

// reachedBySet returns the time until the given percentage of the pods of each SidecarSet served with the new
// image. The times are sorted.
func reachedBySet(served []observer.Update, began time.Time, pods, percent int) []time.Duration {
	seen := map[string]int{}
	var reached []time.Duration
	for _, update := range served {
		set := update.Labels[appLabel]
		seen[set]++
		if seen[set] == (pods*percent+99)/100 {
			reached = append(reached, update.At.Sub(began))
		}
	}
	slices.Sort(reached)
	return reached
}

func sleep(ctx context.Context, pause time.Duration) error {
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// measureRest measures the resources that the roles use after the rollouts, while the watches of pods receive
// the configured number of events.
func (h *harness) measureRest(ctx context.Context) error {
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	before, err := h.sample(ctx)
	if err != nil {
		return err
	}
	if h.events > 0 {
		err = h.makeEvents(ctx, h.rest)
	} else {
		err = sleep(ctx, h.rest)
	}
	if err != nil {
		return err
	}
	after, err := h.sample(ctx)
	if err != nil {
		return err
	}
	used, took := after.since(before), after.at.Sub(before.at)
	h.lines.seconds("seconds at rest", took)
	h.lines.each("at rest, API writes", "%.0f", used[writes], 1)
	h.lines.each("at rest, API reads and opened watches", "%.0f", used[reads], 1)
	h.lines.each("at rest, calls to Temporal", "%.0f", used[calls], 1)
	h.lines.each("at rest, percent of a core", "%.1f", used[processor], 100/took.Seconds())
	h.lines.each("memory, MiB", "%.0f", after.of[resident], 1)
	return nil
}

// addHistories adds the numbers of history events and billable actions of the newest runs to the report.
func (h *harness) addHistories(ctx context.Context, heartbeats int) error {
	a := actions{heartbeats: heartbeats}
	for _, set := range h.sets {
		if err := a.read(ctx, h, protocol.WorkflowID(set.Name, set.UID), ""); err != nil {
			return err
		}
	}
	h.lines.add("history events", "%d", a.events)
	h.lines.add("history events a pod", "%.3f", float64(a.events)/float64(h.pods))
	h.lines.add("actions of Temporal Cloud", "%d", a.others+a.activities+a.heartbeats)
	h.lines.add("  of them heartbeats", "%d", a.heartbeats)
	h.lines.add("  of them activities", "%d", a.activities)
	h.lines.add("actions a pod", "%.3f", float64(a.others+a.activities+a.heartbeats)/float64(h.pods))
	h.lines.add("workflow task failures", "%d", a.failures)
	return nil
}

// changeVersion is the search attribute that contains the workflow versions of a run. Temporal Cloud does not
// count writes of changeVersion as actions.
const changeVersion = "TemporalChangeVersion"

// actions counts the events of runs, and the billable actions of runs in Temporal Cloud
// (https://docs.temporal.io/cloud/actions). actions contains only the kinds of actions that a rollout uses.
// Heartbeats are not in the history, so the caller sets heartbeats from a metric.
type actions struct{ events, failures, activities, heartbeats, others int }

// read counts the events of a run and of the earlier runs in its continue-as-new chain.
func (a *actions) read(ctx context.Context, h *harness, id, run string) error {
	continued := ""
	history := h.stack.Temporal.GetWorkflowHistory(ctx, id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return fmt.Errorf("read the history: %w", err)
		}
		a.count(event)
		if started := event.GetWorkflowExecutionStartedEventAttributes(); started != nil {
			continued = started.ContinuedExecutionRunId
		}
	}
	if continued == "" {
		return nil
	}
	return a.read(ctx, h, id, continued)
}

func (a *actions) count(event *history.HistoryEvent) {
	a.events++
	switch event.EventType {
	case enums.EVENT_TYPE_WORKFLOW_TASK_FAILED:
		a.failures++
	case enums.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, enums.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
		enums.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED, enums.EVENT_TYPE_TIMER_STARTED:
		a.others++
	case enums.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
		fields := event.GetUpsertWorkflowSearchAttributesEventAttributes().GetSearchAttributes().GetIndexedFields()
		if !slices.Equal(slices.Collect(maps.Keys(fields)), []string{changeVersion}) {
			a.others++
		}
	case enums.EVENT_TYPE_ACTIVITY_TASK_STARTED:
		// The history contains a started event only for the last attempt of an activity.
		a.activities += int(event.GetActivityTaskStartedEventAttributes().Attempt)
	}
}
