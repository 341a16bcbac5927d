// Command bench measures a rollout on the local stack, and in the same run what
// an ideal mover would need: one that knows nothing but pods, an image and a
// window.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/dev/bench/testbed"
)

type options struct {
	pods    int
	window  string
	workers int
	hot     bool
	ready   time.Duration
	ideal   bool
	rounds  int
	timeout time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctrllog.SetLogger(logr.Discard())
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "bench",
		Short:         "Measure a rollout on simulated nodes",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o, cmd.OutOrStdout()) },
	}
	cmd.Flags().IntVar(&o.pods, "pods", 1000, "number of pods")
	cmd.Flags().StringVar(&o.window, "window", "10%", "maxUnavailable: number or percent")
	cmd.Flags().IntVar(&o.workers, "workers", 1, "number of workers")
	cmd.Flags().BoolVar(&o.hot, "hot", false, "upgrade hot: two twins, two writes a pod")
	cmd.Flags().DurationVar(&o.ready, "ready-after", 0, "what pods take to be ready after a restart; 0 is as fast as simulated pods are")
	cmd.Flags().BoolVar(&o.ideal, "ideal", true, "have the ideal mover go before and after")
	cmd.Flags().IntVar(&o.rounds, "rounds", 3, "measure so often beside the ideal mover, each time on a new cluster")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 45*time.Minute, "give up a round after this")
	return cmd
}

func run(ctx context.Context, o options, out io.Writer) error {
	window, err := intstr.GetScaledValueFromIntOrPercent(new(intstr.Parse(o.window)), o.pods, true)
	if err != nil || window < 1 || o.pods < 1 {
		return fmt.Errorf("--pods %d and --window %s: at least one pod must be allowed to move", o.pods, o.window)
	}
	if o.rounds < 1 {
		return fmt.Errorf("--rounds %d: at least one", o.rounds)
	}
	if !o.ideal {
		o.rounds = 1
	}
	var all []*result
	for range o.rounds {
		round, err := o.round(ctx, window)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(out, round.String()); err != nil {
			return err
		}
		all = append(all, round)
	}
	if len(all) > 1 {
		_, err = fmt.Fprintf(out, "times the ideal, median of %d rounds           %.2f\n", len(all), medianTimesIdeal(all))
	}
	return err
}

// round measures once, on a cluster of its own.
func (o options) round(ctx context.Context, window int) (*result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("no end after %s", o.timeout))
	defer cancel()
	bed, err := testbed.Start(ctx, o.pods)
	if err != nil {
		return nil, err
	}
	defer bed.Close()
	b := &bench{Testbed: bed, pods: o.pods, window: window, ready: o.ready, hot: o.hot}
	if o.ideal {
		return b.compare(ctx, o.workers)
	}
	return b.rollout(ctx, o.workers)
}

// compare has the ideal mover go before and after, since a cluster grows slower
// with what it has seen.
func (b *bench) compare(ctx context.Context, workers int) (*result, error) {
	before, err := b.ideal(ctx, "ideal-before")
	if err != nil {
		return nil, fmt.Errorf("ideal mover: %w", err)
	}
	r, err := b.rollout(ctx, workers)
	if err != nil {
		return nil, fmt.Errorf("rollout: %w", err)
	}
	if err := b.leave(ctx); err != nil {
		return nil, fmt.Errorf("leave: %w", err)
	}
	after, err := b.ideal(ctx, "ideal-after")
	if err != nil {
		return nil, fmt.Errorf("ideal mover: %w", err)
	}
	r.before, r.after = before, after
	return r, nil
}
