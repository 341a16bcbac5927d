package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

const (
	// listInterval is the time between two reads of all SidecarSets.
	listInterval = time.Second
	// askInterval is the time between two reads of the runs and nodes of SidecarSets.
	askInterval = 2 * time.Second
	// maxRefused is the number of consecutive 401 and 403 responses that a watched list tolerates. A credential
	// plugin renews expired credentials only after a 401. An API server that starts answers 403 until it has read
	// the roles.
	maxRefused = 5
)

// listed contains the SidecarSets of the last successful read. note describes a failure after this read, or a
// fault of the installation.
type listed struct {
	view.Summaries
	note string
	// about identifies the fault in note. In contrast to note, about contains no times, so that the same fault
	// is printed only once.
	about string
}

// newNote returns the note, or an empty string if shown has a note about the same fault.
func (l listed) newNote(shown listed) string {
	if l.about == shown.about {
		return ""
	}
	return l.note
}

func (l listed) Text(s view.Style) string { return l.Summaries.Text(s) + l.note }

// watchList shows all SidecarSets until the user interrupts the command. In a terminal, watchList redraws the
// table. Otherwise, watchList prints the table, and then a line for each changed SidecarSet.
func (s *shared) watchList(ctx context.Context, c *cluster, o output.Flag) error {
	var err error
	if s.terminal() && !o.Structured() {
		err = s.live(ctx, o, func(ctx context.Context, show func(model) error) error {
			return c.followSets(ctx, s.askRuns, func(all listed) error { return show(all) })
		})
	} else {
		var shown listed
		err = c.followSets(ctx, s.askRuns, func(all listed) error {
			_, _ = fmt.Fprint(s.ErrOut, s.suggested(all.newNote(shown)))
			err := s.printChanged(o, shown.Summaries, all.Summaries, shown.Summaries == nil)
			shown = all
			return err
		})
	}
	if ctx.Err() != nil || errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// followSets reads the SidecarSets every listInterval, and queries their runs every askInterval. After the
// first read, followSets ends only if ctx ends, if show fails, or if more than maxRefused consecutive reads are
// forbidden or unauthorized.
func (c *cluster) followSets(ctx context.Context, ask answers, show func(listed) error) error {
	var last listed
	var known *view.ListInput
	var asked time.Time
	refused := 0
	for {
		sets, err := c.sets(ctx)
		if refused++; !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			refused = 0
		}
		switch {
		case err == nil:
			if known == nil || time.Since(asked) >= askInterval {
				known, asked = c.listInput(ctx, sets, ask), time.Now()
			}
			known.Sets, known.Now = sets, time.Now()
			last = listed{view.NewSummaries(known), known.Fault.Line(), known.Fault.Reason}
		case last.Summaries == nil || ctx.Err() != nil || refused > maxRefused:
			return err
		default:
			last.note = "Note: " + err.Error() + "; the list is read again\n"
			last.about = last.note
		}
		if err := show(last); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(listInterval):
		}
	}
}

// printChanged prints the SidecarSets that differ between shown and all. Only the first call prints the
// heading.
func (s *shared) printChanged(o output.Flag, shown, all view.Summaries, first bool) error {
	if first {
		return s.print(o, all)
	}
	before := map[string]view.Summary{}
	for i := range shown {
		before[shown[i].Name] = shown[i]
	}
	changed := view.Summaries{}
	for i := range all {
		if !all[i].Equal(before[all[i].Name]) {
			changed = append(changed, all[i])
		}
		delete(before, all[i].Name)
	}
	for i := range shown {
		if one, deleted := before[shown[i].Name]; deleted {
			one.Headline, one.Attention = "Deleted", nil
			changed = append(changed, one)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if o.Structured() {
		return s.print(o, changed)
	}
	_, lines, _ := strings.Cut(changed.Text(s.style(o)), "\n")
	_, err := fmt.Fprint(s.Out, Printable(s.suggested(lines)))
	return err
}
