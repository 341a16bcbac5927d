package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/temporal"
)

const (
	// watchInterval is the time between two reads of a watched rollout. watchCallTimeout limits the time of a
	// read.
	watchInterval    = 2 * time.Second
	watchCallTimeout = 10 * time.Second
)

func (f *fleetCommand) newStatus() *cobra.Command {
	cmd := f.sub("status [NAME]", "Show rollouts across many clusters", cobra.MaximumNArgs(1), f.status)
	cmd.Long = "Show rollouts across many clusters with a line for each cluster, the worst first.\n\n" +
		"With --watch, the command waits until the rollout of the current content ends. The exit code is 0 once the content is\n" +
		"through all stages; 2 if the rollout has failed, or is paused after a failure; 1 at the timeout, if other content\n" +
		"supersedes this content, or if the rollout cannot be read."
	cmd.Example = `  outrigger fleet status edge-proxy
  outrigger fleet status edge-proxy --watch --timeout 12h            # wait for the end, for example in a pipeline
  outrigger fleet status edge-proxy --watch --content "$HASH"        # also wait until a cluster reports this content`
	f.output.Add(cmd, output.JSON, output.YAML)
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "show each change until the rollout ends")
	cmd.Flags().StringVar(&f.content, "content", "", "`hash` of the content that --watch is about; empty: the current content")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "time limit of --watch; 0: none")
	return cmd
}

func (f *fleetCommand) status(ctx context.Context, c client.Client, args []string, out io.Writer) error {
	switch {
	case !f.watch && (f.timeout != 0 || f.content != ""):
		return rolloutError{"--timeout and --content need --watch", 1}
	case f.timeout < 0:
		return rolloutError{"--timeout must be positive, or 0 for none", 1}
	case f.watch && len(args) == 0:
		return rolloutError{"--watch needs the name of a SidecarSet", 1}
	case f.watch:
		ticker := time.NewTicker(watchInterval)
		defer ticker.Stop()
		read := func(ctx context.Context) (protocol.FleetState, error) { return temporal.FleetRollout(ctx, c, args[0]) }
		return f.follow(ctx, out, &fleetWatch{set: args[0], content: f.content, read: read, next: ticker.C})
	case len(args) == 0:
		states, err := temporal.FleetRollouts(ctx, c)
		if err != nil {
			return err
		}
		return errors.Join(f.print(out, states), unreadable(states))
	}
	state, err := temporal.FleetRollout(ctx, c, args[0])
	if err != nil {
		return err
	}
	return f.print(out, []protocol.FleetState{state})
}

// unreadable returns an error if a rollout could not be read.
func unreadable(states []protocol.FleetState) error {
	for i := range states {
		if states[i].Phase == "" {
			return rolloutError{fmt.Sprintf("SidecarSet %s: %s", states[i].Set, view.OneLine(states[i].Message)), 1}
		}
	}
	return nil
}

// print prints rollouts in the format of the flag --output.
func (f *fleetCommand) print(out io.Writer, states []protocol.FleetState) error {
	if f.output.Structured() {
		return f.output.Write(out, states)
	}
	for i := range states {
		if err := printState(out, &states[i]); err != nil {
			return err
		}
	}
	return nil
}

// printState prints a rollout with one line for each cluster. Failed clusters come first.
func printState(out io.Writer, s *protocol.FleetState) error {
	if s.Phase == "" {
		_, err := fmt.Fprintf(out, "%s: %s\n", s.Set, view.OneLine(s.Message))
		return err
	}
	if _, err := fmt.Fprintf(out, "%s: %s: %s (content %s, policy %s)\n", s.Set, s.Phase, view.OneLine(s.Message), s.Hash, cmp.Or(s.Policy, "none")); err != nil {
		return err
	}
	var rows [][]string
	for _, cluster := range fleet.WorstFirst(s) {
		rows = append(rows, []string{"  " + cmp.Or(cluster.Name, "-"), fleet.StageName(s, cluster), string(cluster.State), timeOf(cluster.Since), cluster.Reason})
	}
	return printTable(out, []string{"  CLUSTER", "STAGE", "STATE", "SINCE", "REASON"}, rows)
}

func timeOf(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// rolloutError is an error of a fleet command that is not about the connection to Temporal. code is the exit
// code of the command.
type rolloutError struct {
	message string
	code    int
}

func (e rolloutError) Error() string { return e.message }

// fleetWatch follows the rollout of content across many clusters.
type fleetWatch struct {
	set, content string
	read         func(context.Context) (protocol.FleetState, error)
	// next receives a value when the next read is due.
	next <-chan time.Time
	// last contains the lines of the last state. failure is the error that was printed last.
	last    map[string]bool
	failure string
}

// follow prints each change of a rollout until the rollout ends. If the first read fails, follow returns the
// error, because a flag may be wrong. With --content, follow waits for a missing workflow. After the first answer
// of Temporal, failed reads are retried, because a rollout may take days.
func (f *fleetCommand) follow(ctx context.Context, out io.Writer, w *fleetWatch) error {
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	for first := true; ; {
		calling, cancel := context.WithTimeout(ctx, watchCallTimeout)
		state, err := w.read(calling)
		cancel()
		waits := w.content != "" && temporal.IsNotFound(err)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			first, w.content = false, cmp.Or(w.content, state.Hash)
			if err := f.show(out, w, &state); err != nil {
				return err
			}
			if phase := fleet.Ended(&state, w.content); phase != "" {
				return ending(&state, w.content, phase)
			}
		case first && !waits:
			return err
		default:
			first = false // Temporal has answered, so the flags are right.
			if err := f.showFailure(out, w, temporal.Explained(err).Error()); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return f.unended(ctx, w.set)
		case <-w.next:
		}
	}
}

// unended returns the error of a watch that ends before the end of the rollout.
func (f *fleetCommand) unended(ctx context.Context, set string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return rolloutError{fmt.Sprintf("the rollout of %s has not ended after %s", set, f.timeout), 1}
	}
	return rolloutError{"interrupted; the rollout of " + set + " continues", 1}
}

// show prints the changed lines of a rollout. With --output, show prints the whole rollout after each change.
func (f *fleetCommand) show(out io.Writer, w *fleetWatch, s *protocol.FleetState) error {
	lines := []string{fmt.Sprintf("%s: %s: %s (content %s)", s.Set, s.Phase, view.OneLine(s.Message), s.Hash)}
	for _, cluster := range fleet.WorstFirst(s) {
		line := fmt.Sprintf("%s: cluster %s: %s", s.Set, view.OneLine(cmp.Or(cluster.Name, "-")), cluster.State)
		if cluster.Reason != "" {
			line += ": " + view.OneLine(cluster.Reason)
		}
		lines = append(lines, line)
	}
	if !f.output.Structured() {
		return w.lines(out, lines...)
	}
	var changed strings.Builder
	if err := w.lines(&changed, lines...); err != nil || changed.Len() == 0 {
		return err
	}
	return f.output.Write(out, []protocol.FleetState{*s})
}

// showFailure prints the error of a read if it differs from the last error. With --output, the error goes to
// stderr, so that stdout contains only documents.
func (f *fleetCommand) showFailure(out io.Writer, w *fleetWatch, failure string) error {
	if failure == w.failure {
		return nil
	}
	w.failure = failure
	if f.output.Structured() {
		out = f.errOut
	}
	_, err := fmt.Fprintf(out, "%s: cannot be read now: %s\n", w.set, failure)
	return err
}

// lines prints the lines that were not among the lines of the previous call.
func (w *fleetWatch) lines(out io.Writer, lines ...string) error {
	printed := map[string]bool{}
	for _, line := range lines {
		if printed[line] = true; w.last[line] {
			continue
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	w.last = printed
	return nil
}

// ending returns the error of a rollout that has ended, or nil if the content has passed all stages.
func ending(s *protocol.FleetState, content string, phase protocol.FleetPhase) error {
	switch {
	case phase == protocol.FleetThrough:
		return nil
	case phase == protocol.FleetSuperseded:
		return rolloutError{fmt.Sprintf("content %s of %s was superseded by content %s", content, s.Set, s.Hash), 1}
	case s.Hash != content:
		return rolloutError{fmt.Sprintf("the rollout of content %s of %s has failed (outrigger fleet history %s)", content, s.Set, s.Set), 2}
	case phase == protocol.FleetPaused:
		return rolloutError{fmt.Sprintf("the rollout of %s is paused: %s (outrigger fleet retry or abort)", s.Set, view.OneLine(s.Message)), 2}
	}
	return rolloutError{fmt.Sprintf("the rollout of %s has failed: %s", s.Set, view.OneLine(s.Message)), 2}
}
