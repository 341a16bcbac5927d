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

// parallelUpdates limits the runs that are updated at once. Without a worker, each run is waited
// for until updateTimeout.
const parallelUpdates = 100

// updateAll sends an update to the open run of each SidecarSet. A failure does not stop the others.
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

// answers leaves out SidecarSets without an open run. A run that is not paused cannot be resumed,
// which is no failure.
func (s *sender) answers(sets []v1alpha1.SidecarSet, answers []updateAnswer, errs []error) updateAnswers {
	all := updateAnswers{Sets: []updateAnswer{}, Temporal: s.endpoint(), pauses: s.update == protocol.PauseUpdate}
	for i, err := range errs {
		set, answer := &sets[i], answers[i]
		answer.Name = set.Name
		var rejected *sdk.ApplicationError
		switch {
		case temporal.IsNotFound(err):
			all.WithoutRun++
			continue
		case !all.pauses && errors.As(err, &rejected) && rejected.Message() == protocol.NotPaused:
			answer.Message = "unchanged: " + protocol.NotPaused
		case err != nil:
			answer.Error = s.explainUpdate(set.Name, s.update, err).Error()
		}
		if !all.pauses && set.Spec.UpdateStrategy.Paused {
			answer.Message += "; paused: " + view.PausedBySpec(set.Name)
		}
		all.Sets = append(all.Sets, answer)
	}
	return all
}

// updateAnswers are the answers of all open runs.
type updateAnswers struct {
	Sets []updateAnswer `json:"sidecarSets"`
	// WithoutRun is the number of SidecarSets without an open run.
	WithoutRun int    `json:"withoutRun"`
	Temporal   string `json:"temporal"`
	pauses     bool
}

func (all updateAnswers) Text(view.Style) string {
	var out strings.Builder
	for _, answer := range all.Sets {
		out.WriteString(answer.line())
	}
	switch {
	case len(all.Sets) == 0:
		fmt.Fprintf(&out, "%s has no open run of a SidecarSet; if the operator uses another Temporal, %s\n", all.Temporal, otherTemporal)
	case all.pauses && all.WithoutRun > 0:
		fmt.Fprintf(&out, "SidecarSets without an open run, which are not paused: %d; spec.updateStrategy.paused pauses their next run\n", all.WithoutRun)
	}
	if all.pauses && len(all.Sets) > 0 {
		out.WriteString("next: kubectl sidecarset resume --all\n")
	}
	return out.String()
}

// failure names the SidecarSets whose run did not confirm the update.
func (all updateAnswers) failure(update string) error {
	var failed []string
	for _, answer := range all.Sets {
		if answer.Error != "" {
			failed = append(failed, answer.Name)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%s failed for %d of %d SidecarSets: %s", update, len(failed), len(all.Sets), strings.Join(failed, ", "))
}
