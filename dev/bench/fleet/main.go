// Command fleet measures Outrigger on the local stack with many SidecarSets and pods:
// beside idle sets, when sets are created, when all roll out, at rest, and when a
// process starts again.
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
	root := &cobra.Command{
		Use:           "fleet",
		Short:         "Measure many SidecarSets and pods on simulated nodes",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().Duration("timeout", 20*time.Minute, "give up after this")
	root.AddCommand(newIdleSets(), newCreateSets(), newRollouts(), newRest(), newStart())
	return root
}

// bench is one of the subcommands.
type bench interface {
	// check says which sizes cannot be.
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

// positive refuses a size below 1.
func positive(flag string, n int) error {
	if n < 1 {
		return fmt.Errorf("--%s %d: at least 1", flag, n)
	}
	return nil
}

// checkSets refuses sets without pods, and windows that let none of them move.
func checkSets(sets, pods int, window string) error {
	if sets < 1 || pods < sets {
		return fmt.Errorf("--sets %d and --pods %d: each set needs a pod", sets, pods)
	}
	moving, err := intstr.GetScaledValueFromIntOrPercent(new(intstr.Parse(window)), pods/sets, true)
	if err != nil || moving < 1 {
		return fmt.Errorf("--window %s: at least one pod of a set must be allowed to move", window)
	}
	return nil
}
