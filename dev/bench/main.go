// Command bench measures rollouts on the local stack.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

func main() {
	ctrllog.SetLogger(logr.Discard())
	root := &cobra.Command{Use: "bench", Short: "Measure Outrigger on the local stack", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(
		(&bench{pods: 1000, sets: 1, workers: 1, baseline: true, rounds: 3, upgrades: true}).command("rollout", "Measure a rollout and a baseline"),
		(&bench{pods: 5000, sets: 50, workers: 2, rounds: 1, upgrades: true}).command("fleet", "Measure many SidecarSets: creation, rollouts, and rest"),
	)
	if err := root.ExecuteContext(signals.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// timeout is the longest duration of a benchmark.
const timeout = 45 * time.Minute

// command returns a subcommand whose default sizes are the fields of b.
func (b *bench) command(use, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.check(); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("no end after %s", timeout))
			defer cancel()
			return b.run(ctx, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&b.pods, "pods", b.pods, "number of pods, in all")
	flags.IntVar(&b.sets, "sets", b.sets, "number of SidecarSets")
	flags.IntVar(&b.idle, "idle-sets", 0, "number of SidecarSets without pods, in addition to those that roll out")
	flags.IntVar(&b.workers, "workers", b.workers, "number of workers")
	flags.StringVar(&b.window, "window", "10%", "maxUnavailable of each SidecarSet: number or percent")
	flags.IntVar(&b.maxUnavailablePods, "max-unavailable-pods", 0, "flag of the workers; fail when more pods were in flight; 0: none")
	flags.BoolVar(&b.hot, "hot", false, "upgrade hot: two twins, two writes a pod")
	flags.DurationVar(&b.ready, "ready-after", 0, "what a pod takes to become ready after a restart; 0 is as fast as simulated pods are")
	flags.BoolVar(&b.baseline, "ideal", b.baseline, "measure the baseline before and after the rollout")
	flags.IntVar(&b.rounds, "rounds", b.rounds, "number of measurements with a baseline, each on a new cluster")
	flags.BoolVar(&b.perNamespace, "per-namespace", false, "each SidecarSet selects the pods of its own namespace")
	flags.BoolVar(&b.upgrades, "upgrade", b.upgrades, "upgrade the pods")
	flags.IntVar(&b.events, "events", 0, "number of events of pods per second during the rest")
	flags.DurationVar(&b.rest, "rest", 0, "measure for this long what the SidecarSets cost after their rollouts")
	return cmd
}

// check rejects sizes that cannot be measured.
func (b *bench) check() error {
	slots, err := b.slots()
	switch {
	case b.sets < 1 || b.workers < 1 || b.rounds < 1:
		return errors.New("--sets, --workers and --rounds: at least 1")
	case b.events > 0 && (b.pods == 0 || b.rest == 0):
		return errors.New("--events needs --pods and --rest")
	case b.pods > 0 && (err != nil || slots < 1 || b.pods < b.sets):
		return fmt.Errorf("--pods %d, --sets %d, --window %s: each SidecarSet needs a pod that may be unavailable", b.pods, b.sets, b.window)
	case b.baseline && !b.comparable():
		return errors.New("--ideal needs --pods and --upgrade, and works only with --sets=1 and without --per-namespace")
	}
	return nil
}

// comparable reports whether a baseline can be measured. A baseline upgrades the pods of one Deployment.
func (b *bench) comparable() bool {
	return b.sets == 1 && b.pods > 0 && b.upgrades && !b.perNamespace
}

// slots returns the number of pods of each SidecarSet that may be unavailable.
func (b *bench) slots() (int, error) {
	return intstr.GetScaledValueFromIntOrPercent(new(intstr.Parse(b.window)), b.pods/max(b.sets, 1), true)
}
