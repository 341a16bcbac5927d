// Command bench measures Outrigger on the local stack. It measures rollouts and many
// SidecarSets.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrllog.SetLogger(logr.Discard())
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{Use: "bench", Short: "Measure Outrigger on the local stack", SilenceUsage: true, SilenceErrors: true}
	root.PersistentFlags().Duration("timeout", 45*time.Minute, "give up after this")
	root.AddCommand(newRollout(), newFleet())
	return root
}

// bench is the implementation of a subcommand.
type bench interface {
	// check rejects sizes that cannot be measured.
	check() error
	run(ctx context.Context, out io.Writer) error
}

func subcommand(use, short string, b bench) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			timeout, err := cmd.Flags().GetDuration("timeout")
			if err != nil {
				return err
			}
			if err := b.check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("no end after %s", timeout))
			defer cancel()
			return b.run(ctx, cmd.OutOrStdout())
		},
	}
}

// sizes are the sizes of a measurement. pods is the number of pods of all SidecarSets together.
// window is the maxUnavailable of each SidecarSet.
type sizes struct {
	pods, sets, workers int
	window              string
}

func (s *sizes) addFlags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&s.pods, "pods", s.pods, "number of pods, in all")
	cmd.Flags().IntVar(&s.sets, "sets", s.sets, "number of SidecarSets")
	cmd.Flags().StringVar(&s.window, "window", s.window, "maxUnavailable of each SidecarSet: number or percent")
	cmd.Flags().IntVar(&s.workers, "workers", s.workers, "number of workers")
}

func (s *sizes) check() error {
	for flag, n := range map[string]int{"sets": s.sets, "workers": s.workers} {
		if n < 1 {
			return fmt.Errorf("--%s %d: at least 1", flag, n)
		}
	}
	if s.pods == 0 {
		return nil
	}
	if s.pods < s.sets {
		return fmt.Errorf("--sets %d and --pods %d: each SidecarSet needs a pod", s.sets, s.pods)
	}
	if slots, err := s.slots(); err != nil || slots < 1 {
		return fmt.Errorf("--window %s: at least one pod of a SidecarSet must be allowed to be unavailable", s.window)
	}
	return nil
}

// slots returns the number of pods of each SidecarSet that may be unavailable.
func (s *sizes) slots() (int, error) {
	return intstr.GetScaledValueFromIntOrPercent(new(intstr.Parse(s.window)), s.pods/s.sets, true)
}
