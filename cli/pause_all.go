package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdk "go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/temporal"
)

// parallelUpdates limits the number of runs that are updated at the same time. Without a worker, each update
// blocks until updateTimeout.
const parallelUpdates = 100

// updateAll sends update to the open run of each SidecarSet. If an update fails, updateAll continues with the
// other SidecarSets.
func (s *shared) updateAll(ctx context.Context, c *cluster, update, reason string) (model, error) {
	sets, err := c.sets(ctx)
	if err != nil {
		return nil, err
	}
	sender, err := s.sender(ctx, c, update, reason)
	if err != nil {
		return nil, err
	}
	defer sender.Close()
	answers := make([]updateAnswer, len(sets))
	errs := make([]error, len(sets))
	var group errgroup.Group
	group.SetLimit(parallelUpdates)
	for i := range sets {
		group.Go(func() error {
			answers[i], errs[i] = sender.send(ctx, &sets[i])
			return nil
		})
	}
	_ = group.Wait()
	all := sender.answers(sets, answers, errs)
	return all, all.failure(update)
}

// answers returns the answers of the open runs. A SidecarSet without an open run is omitted, except in a
// resume if the SidecarSet is paused by its spec. If a run rejects a resume because the run is not paused,
// the answer is not a failure.
func (s *sender) answers(sets []v1alpha1.SidecarSet, answers []updateAnswer, errs []error) updateAnswers {
	all := updateAnswers{Sets: []updateAnswer{}, Temporal: s.endpoint(), pauses: s.update == protocol.PauseUpdate}
	for i, err := range errs {
		set, answer := &sets[i], answers[i]
		answer.Name = set.Name
		pausedBySpec := !all.pauses && set.Spec.UpdateStrategy.Paused
		var rejected *sdk.ApplicationError
		switch {
		case temporal.IsNotFound(err):
			all.WithoutRun++
			if view.Unfinished(set) {
				all.unfinished = append(all.unfinished, set.Name)
			}
			if !pausedBySpec {
				continue
			}
			answer.Message = "has no open run"
		case !all.pauses && errors.As(err, &rejected) && rejected.Message() == protocol.NotPaused:
			answer.Message = "unchanged: " + protocol.NotPaused
		case err != nil:
			answer.Error = s.explainUpdate(set, s.update, err).Error()
		}
		if pausedBySpec {
			answer.Message += "; paused: " + view.PausedBySpec(set.Name)
		}
		all.Sets = append(all.Sets, answer)
	}
	all.runs = len(sets) - all.WithoutRun
	return all
}

// updateAnswers contains the answers of all open runs. For a resume, updateAnswers also contains the
// SidecarSets that have no open run and are paused by their spec.
type updateAnswers struct {
	Sets []updateAnswer `json:"sidecarSets"`
	// WithoutRun is the number of SidecarSets without an open run.
	WithoutRun int    `json:"withoutRun"`
	Temporal   string `json:"temporal"`
	pauses     bool
	// runs is the number of open runs.
	runs int
	// unfinished contains the SidecarSets without an open run whose status shows an unfinished rollout.
	unfinished []string
}

func (all updateAnswers) Text(view.Style) string {
	var out strings.Builder
	for _, answer := range all.Sets {
		out.WriteString(answer.line())
	}
	switch {
	case all.runs == 0:
		fmt.Fprintf(&out, "no SidecarSet has an open run; if the operator uses another Temporal than %s, %s\n", strings.TrimPrefix(all.Temporal, "Temporal at "), otherTemporal)
	case all.pauses && all.WithoutRun > 0:
		fmt.Fprintf(&out, "SidecarSets without an open run, which are not paused: %d; spec.updateStrategy.paused pauses their next run\n", all.WithoutRun)
	}
	if all.pauses && len(all.Sets) > 0 {
		out.WriteString("next: kubectl sidecarset resume --all\n")
	}
	return out.String()
}

// failure returns an error that names the SidecarSets whose update failed. If no run is open, the error names
// the SidecarSets whose status shows an unfinished rollout.
func (all updateAnswers) failure(update string) error {
	var failed []string
	for _, answer := range all.Sets {
		if answer.Error != "" {
			failed = append(failed, answer.Name)
		}
	}
	switch {
	case len(failed) > 0:
		return fmt.Errorf("%s failed for %d of %d SidecarSets: %s", update, len(failed), all.runs, strings.Join(failed, ", "))
	case all.runs == 0 && len(all.unfinished) > 0:
		return fmt.Errorf("%s failed: no run is open, but the status of these SidecarSets shows an unfinished rollout: %s", update, strings.Join(all.unfinished, ", "))
	}
	return nil
}
