// Command scale simulates a rollout to very many pods: the planner of production, with
// kubelets, API server and Temporal played in virtual time.
package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
)

const (
	// A batch is two activities, each of which is three events, and the workflow task
	// after each another three. A run has some more around its batches.
	eventsPerBatch = 12
	eventsPerRun   = 15
	// longHistory is where a run continues as new (workflows/run.go).
	longHistory = 4000
	// cachedPod is what a pod takes in the cache, in bytes (docs/speed.md).
	cachedPod = 3241
)

func main() {
	if err := newCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:           "scale",
		Short:         "Simulate a rollout to very many pods",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := newSimulation(o)
			if err != nil {
				return err
			}
			found, err := s.run()
			if err != nil {
				return err
			}
			return found.print(cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().IntVar(&o.pods, "pods", 100_000, "number of pods")
	cmd.Flags().StringVar(&o.window, "window", "5%", "maxUnavailable: number or percent")
	cmd.Flags().Uint64Var(&o.seed, "seed", 1, "seed of the pods' restart times")
	cmd.Flags().Float64Var(&o.qps, "kube-api-qps", 200, "as of the worker")
	cmd.Flags().IntVar(&o.burst, "kube-api-burst", 400, "as of the worker")
	cmd.Flags().IntVar(&o.batches, "batches", 0, "end after so many; 0: when all pods are upgraded")
	cmd.Flags().DurationVar(&o.planCost, "plan-cost", 500*time.Nanosecond, "virtual time of a plan for each pod")
	return cmd
}

func (f *figures) print(out io.Writer, o options) error {
	events := eventsPerRun + eventsPerBatch*f.Batches
	_, err := fmt.Fprintf(out, `pods %d, window %s, %g requests/s, seed %d
upgraded            %d, at most %d unavailable at once
virtual time        %s, ideal %s: %.2f times
batches             %d, of %.0f pods
history             about %d events, %.3f a pod; continued as new %d times
plans               %d; %s each, %s the longest, %s in all (%.0f ns a pod)
memory              %d MiB of pods in the cache, %d MiB of the planner
`,
		o.pods, o.window, o.qps, o.seed, f.Upgraded, f.MostInFlight,
		f.Virtual.Round(time.Second), f.Ideal.Round(time.Second), f.Virtual.Seconds()/f.Ideal.Seconds(),
		f.Batches, float64(f.Upgraded)/float64(max(f.Batches, 1)),
		events, float64(events)/float64(max(f.Upgraded, 1)), events/longHistory,
		f.Plans, (f.Planning / time.Duration(f.Plans)).Round(time.Microsecond), f.Longest.Round(time.Millisecond), f.Planning.Round(time.Millisecond),
		float64(f.Planning.Nanoseconds())/float64(f.Plans)/float64(o.pods),
		o.pods*cachedPod>>20, f.PlannerHeap>>20)
	if err != nil {
		return fmt.Errorf("write the figures: %w", err)
	}
	return nil
}
