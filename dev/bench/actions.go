package main

import (
	"maps"
	"slices"

	"go.temporal.io/api/history/v1"
)

// changeVersion is the search attribute of versions, which is no action.
const changeVersion = "TemporalChangeVersion"

// actions are what Temporal Cloud counts of a run
// (https://docs.temporal.io/cloud/actions), as far as rollouts have it.
type actions struct {
	starts, signals, updates, timers, attributes, activities int
	// heartbeats are in no history.
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
		// Only the last attempt has an event.
		a.activities += int(attributes.ActivityTaskStartedEventAttributes.Attempt)
	}
}
