package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/cli"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/simulate"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/subcommand"
)

// simulateOptions are the flags of the command simulate policy.
type simulateOptions struct {
	file, set, now string
	coldRestart    time.Duration
	approvalAfter  time.Duration
	fail           int
	output         output.Flag
}

func newSimulate(shared *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "simulate", Short: "Simulate rollouts, and write nothing"}
	cmd.AddCommand(newSimulatePolicy(shared))
	subcommand.Required(cmd)
	return cmd
}

func newSimulatePolicy(shared *flags) *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "policy -f FILE --sidecarset NAME",
		Short: "Show the timeline of a rollout under a RolloutPolicy",
		Long: "Runs the planner of the worker and a RolloutPolicy over the present pods of a SidecarSet, with virtual time, and\n" +
			"writes nothing. The policy applies in the simulation even if it would not apply in the cluster. If all pods\n" +
			"are updated, the simulation upgrades them to a hypothetical new image. All samples of gates succeed.",
		Example: `  outrigger simulate policy -f policy.yaml --sidecarset logs
  outrigger simulate policy -f policy.yaml --sidecarset logs --cold-restart 20s --approval-after 4h
  outrigger simulate policy -f policy.yaml --sidecarset logs --now 2026-11-27T12:00:00Z -o json
  outrigger simulate policy -f policy.yaml --sidecarset logs --fail 2   # two of the upgraded pods fail`,
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := shared.options(args)
			if err != nil {
				return err
			}
			return o.run(cmd, options)
		},
	}
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "`file` with the RolloutPolicy; -: standard input")
	cmd.Flags().StringVar(&o.set, "sidecarset", "", "`name` of the SidecarSet whose rollout is simulated")
	cmd.Flags().DurationVar(&o.coldRestart, "cold-restart", 5*time.Second, "time from the upgrade of a pod until the pod is ready")
	cmd.Flags().DurationVar(&o.approvalAfter, "approval-after", 0, "time that each approval takes")
	cmd.Flags().IntVar(&o.fail, "fail", 0, "`number` of pods that fail in the simulation; the pods that are upgraded first fail")
	cmd.Flags().StringVar(&o.now, "now", "", "`time` at which the rollout begins, such as 2026-11-27T12:00:00Z; empty: the present time")
	o.output.Add(cmd, "text", output.JSON, output.YAML)
	return cmd
}

func (o *simulateOptions) run(cmd *cobra.Command, options kube.Options) error {
	begin, err := o.begin()
	if err != nil {
		return err
	}
	policy, err := readPolicy(o.file, cmd.InOrStdin())
	if err != nil {
		return err
	}
	client, err := directClient(options)
	if err != nil {
		return err
	}
	source := simulationSource{Client: client}
	in, notes, err := source.read(cmd.Context(), o.set, policy)
	if err != nil {
		return err
	}
	in.Begin, in.ColdRestart, in.ApprovalAfter, in.Fail = begin, o.coldRestart, o.approvalAfter, o.fail
	return o.print(cmd.Context(), cmd, in, notes)
}

func (o *simulateOptions) print(ctx context.Context, cmd *cobra.Command, in *simulate.Input, notes []string) error {
	result, err := simulate.Run(ctx, in)
	if err != nil {
		return err
	}
	result.Notes = append(notes, result.Notes...)
	if o.output.Structured() {
		return o.output.Write(cmd.OutOrStdout(), result)
	}
	for i := range result.Events {
		result.Events[i].Message = view.OneLine(result.Events[i].Message)
	}
	for i := range result.Notes {
		result.Notes[i] = view.OneLine(result.Notes[i])
	}
	_, err = fmt.Fprint(cli.PrintableWriter(cmd.OutOrStdout()), result.Text())
	return err
}

// begin checks the flags, and returns the time at which the rollout begins.
func (o *simulateOptions) begin() (time.Time, error) {
	switch {
	case o.file == "":
		return time.Time{}, errors.New("no RolloutPolicy: name its file with --filename")
	case o.set == "":
		return time.Time{}, errors.New("no SidecarSet: name it with --sidecarset")
	case o.coldRestart <= 0:
		return time.Time{}, fmt.Errorf("--cold-restart %s: use a positive duration such as 5s", o.coldRestart)
	case o.approvalAfter < 0:
		return time.Time{}, fmt.Errorf("--approval-after %s: use a duration such as 4h, or 0s", o.approvalAfter)
	case o.fail < 0:
		return time.Time{}, fmt.Errorf("--fail %d: use a number of pods, or 0", o.fail)
	case o.now == "":
		return time.Now().UTC().Truncate(time.Second), nil
	}
	begin, err := time.Parse(time.RFC3339, o.now)
	if err != nil {
		return begin, fmt.Errorf("--now %q: use a time such as 2026-11-27T12:00:00Z", o.now)
	}
	return begin.UTC(), nil
}
