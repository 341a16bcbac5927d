package cli

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/output"
)

// listInterval is the time between two reads of all SidecarSets.
const listInterval = time.Second

// watchList shows all SidecarSets until it is interrupted. In a terminal it redraws the table;
// otherwise it prints the table, and then a line for each SidecarSet that changed.
func (s *shared) watchList(ctx context.Context, c *cluster, o output.Flag) error {
	follow := func(ctx context.Context, show func(model) error) error {
		for {
			sets, err := c.sets(ctx)
			if err == nil {
				err = show(view.NewSummaries(sets))
			}
			if err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(listInterval):
			}
		}
	}
	var err error
	if s.terminal() && !o.Structured() {
		err = s.live(ctx, o, follow)
	} else {
		var shown view.Summaries
		first := true
		err = follow(ctx, func(m model) error {
			all := m.(view.Summaries)
			err := s.printChanged(o, shown, all, first)
			shown, first = all, false
			return err
		})
	}
	if ctx.Err() != nil || errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// printChanged prints the SidecarSets that differ from those that are shown, and only at first
// with the heading.
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
		if !reflect.DeepEqual(before[all[i].Name], all[i]) {
			changed = append(changed, all[i])
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if o.Structured() {
		return s.print(o, changed)
	}
	_, lines, _ := strings.Cut(changed.Text(s.style(o)), "\n")
	_, err := fmt.Fprint(s.Out, lines)
	return err
}
