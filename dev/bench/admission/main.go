// Command admission measures how fast the built webhook answers pod admissions
// over TLS, with SidecarSets on a real API server.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/dev/cluster"
)

type options struct {
	others   []int
	runs     int
	duration time.Duration
	timeout  time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "admission",
		Short:         "Measure the admission of pods",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, cmd.OutOrStdout()) },
	}
	cmd.Flags().IntSliceVar(&o.others, "others", []int{97, 10, 1000, 10000}, "numbers of sets that do not match, beside the three that do")
	cmd.Flags().IntVar(&o.runs, "runs", 3, "measure each so often")
	cmd.Flags().DurationVar(&o.duration, "duration", 4*time.Second, "how long a run is")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 15*time.Minute, "give up after this")
	return cmd
}

func run(ctx context.Context, o options, out io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("no end after %s", o.timeout))
	defer cancel()
	dir, err := os.MkdirTemp("", "outrigger-bench-")
	if err != nil {
		return fmt.Errorf("make a state folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	stack, err := cluster.Start(ctx, cluster.Options{Dir: filepath.Join(dir, "stack"), Nodes: 1, WithoutTemporal: true})
	if err != nil {
		return err
	}
	defer stack.Shutdown()
	b, err := newBench(stack, o.runs, o.duration)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, header); err != nil {
		return err
	}
	for _, others := range o.others {
		if err := b.measure(ctx, others, out); err != nil {
			return fmt.Errorf("%d sets that do not match: %w", others, err)
		}
	}
	return nil
}
