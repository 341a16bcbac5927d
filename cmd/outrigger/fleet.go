package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"sigs.k8s.io/yaml"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/cli"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/subcommand"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
	"github.com/outrigger/outrigger/worker"
)

func addFleetMember(cmd *cobra.Command, enabled *bool) {
	cmd.Flags().BoolVar(enabled, "fleet", false, "make the cluster a member of a fleet, in which each rollout needs a permit; must be equal for operator, webhook and worker")
}

func addFleetWorker(cmd *cobra.Command, o *worker.FleetOptions, connection *temporal.FleetFlags) {
	set := cmd.Flags()
	connection.AddTo(set)
	set.StringVar(&o.ClusterName, "fleet-cluster-name", "", "`name` of the cluster in the fleet; empty: the UID of namespace kube-system")
	set.StringToStringVar(&o.ClusterLabels, "fleet-cluster-labels", nil, "`labels` of the cluster, such as stage=canary,region=eu")
}

// needFleet returns an error if the flags of the connection to the fleet are set without the flag --fleet, which
// would make the process ignore the connection.
func needFleet(enabled bool, connection *temporal.FleetFlags) error {
	if !enabled && connection.Given() {
		return errors.New("the flags --fleet-temporal-… need --fleet")
	}
	return nil
}

// fleetCommand contains the flags of the subcommands of outrigger fleet.
type fleetCommand struct {
	temporal temporal.Flags
	keys     codec.Options
	output   output.Flag
	errOut   io.Writer
	by       protocol.Approval
	stage    string
	// file is a flag of apply. policy is the content of the file.
	file   string
	policy outriggerv1.FleetPolicy
	// end contains the flags of freeze for the end of the freeze. until is the resulting time.
	end   cli.FreezeEnd
	until *time.Time
	// watch and timeout are flags of status. content is a flag of status, and of the subcommands that request
	// returns.
	watch   bool
	content string
	timeout time.Duration
}

func newFleet() *cobra.Command {
	f := &fleetCommand{}
	cmd := &cobra.Command{Use: "fleet", Short: "Roll out SidecarSets across many clusters, stage by stage"}
	f.temporal.AddTo(cmd.PersistentFlags())
	f.keys.AddTo(cmd.PersistentFlags())
	apply := f.sub("apply -f FILE", "Apply a FleetPolicy", cobra.NoArgs, f.apply)
	apply.Flags().StringVarP(&f.file, "filename", "f", "", "`file` with the FleetPolicy; -: standard input")
	apply.PreRunE = func(cmd *cobra.Command, _ []string) error { return f.readPolicy(cmd.InOrStdin()) }
	status := f.newStatus()
	plan := f.sub("plan NAME", "Show the stages of a rollout with their clusters, and what each stage waits for", cobra.ExactArgs(1), f.plan)
	history := f.sub("history NAME", "Show the events of a SidecarSet in the fleet, with users and reasons, and the verdict about each content", cobra.ExactArgs(1), f.history)
	for _, cmd := range []*cobra.Command{plan, history} {
		f.output.Add(cmd, output.JSON, output.YAML)
	}
	members := f.sub("members", "List the clusters of the fleet", cobra.NoArgs, f.members)
	f.output.Add(members, output.JSON, output.YAML)
	remove := f.sub("remove CLUSTER", "Remove a cluster from the fleet, by its name or uid", cobra.ExactArgs(1), f.remove)
	approve := f.request(protocol.ApproveUpdate, "Approve the current stage of a rollout")
	approve.Flags().StringVar(&f.stage, "stage", "", "`name` of the stage; empty: the current stage")
	freeze := f.sub("freeze --reason TEXT", "Stop the upgrades in all clusters", cobra.NoArgs, f.freeze)
	f.end.AddTo(freeze.Flags())
	freeze.PreRunE = func(*cobra.Command, []string) (err error) {
		f.until, err = f.end.Time(time.Now())
		return err
	}
	unfreeze := f.sub("unfreeze", "Continue the upgrades in all clusters", cobra.NoArgs, f.unfreeze)
	for _, cmd := range []*cobra.Command{freeze, unfreeze} {
		cmd.Flags().StringVar(&f.by.Reason, "reason", "", "`text` for the history")
	}
	cmd.AddCommand(apply, status, plan, history, members, remove, approve, freeze, unfreeze,
		f.request(protocol.AbortUpdate, "Roll a rollout back in all clusters"),
		f.request(protocol.RetryUpdate, "Restart a failed rollout from its first stage"))
	subcommand.Required(cmd)
	return cmd
}

func (f *fleetCommand) sub(use, short string, args cobra.PositionalArgs, do func(context.Context, client.Client, []string, io.Writer) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
		options, err := f.temporal.ProcessOptions("fleet", f.keys)
		if err != nil {
			return err
		}
		c, err := temporal.NewLazyClient(options, logr.Discard())
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := cmd.Context(), func() {}
		if !f.watch {
			ctx, cancel = context.WithTimeout(ctx, time.Minute)
		}
		defer cancel()
		f.errOut = cli.PrintableWriter(cmd.ErrOrStderr())
		err = do(ctx, c, args, cli.PrintableWriter(cmd.OutOrStdout()))
		if _, ended := errors.AsType[rolloutError](err); ended {
			return err
		}
		if err != nil {
			return fmt.Errorf("Temporal at %s, namespace %s: %w", options.Address, options.Namespace, temporal.Explained(err)) //nolint:staticcheck // Temporal is a name
		}
		return nil
	}}
}

// request returns the subcommand that sends an update to a rollout. The subcommand and the update have the same
// name.
func (f *fleetCommand) request(update, short string) *cobra.Command {
	cmd := f.sub(update+" NAME", short, cobra.ExactArgs(1), func(ctx context.Context, c client.Client, args []string, out io.Writer) error {
		by := protocol.Approval{By: os.Getenv("USER"), Reason: f.by.Reason}
		return send(ctx, c, protocol.FleetWorkflowID(args[0]), update, protocol.FleetStepRequest{Approval: by, Stage: f.stage, Hash: f.content}, out)
	})
	cmd.Flags().StringVar(&f.content, "content", "", "`hash` of the content, as status shows it; empty: the current content")
	cmd.Flags().StringVar(&f.by.Reason, "reason", "", "`text` for the history")
	return cmd
}

// send sends an update, and prints the answer.
func send(ctx context.Context, c client.Client, id, update string, payload any, out io.Writer) error {
	if _, err := c.DescribeWorkflowExecution(ctx, id, ""); err != nil {
		return err
	}
	var result protocol.StepResult
	ctx, cause := temporal.NoteThrottling(ctx)
	err := temporal.Update(ctx, c, client.UpdateWorkflowOptions{WorkflowID: id, UpdateName: update, Args: []any{payload}}, &result)
	return printAnswer(out, &result, cause(err))
}

// printAnswer prints the answer of an update. If the update timed out, no worker responded, because Temporal
// responded to an earlier call.
func printAnswer(out io.Writer, answer *protocol.StepResult, err error) error {
	if temporal.IsUnreachable(err) {
		return rolloutError{"not confirmed: no answer from a worker of the fleet; the request may still take effect once a worker runs", 1}
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, answer.Message)
	return err
}

// readPolicy reads and validates the FleetPolicy of apply.
func (f *fleetCommand) readPolicy(stdin io.Reader) error {
	if f.file == "" {
		return errors.New("no FleetPolicy: name its file with --filename")
	}
	read := func() ([]byte, error) { return os.ReadFile(f.file) }
	if f.file == "-" {
		read = func() ([]byte, error) { return io.ReadAll(stdin) }
	}
	data, err := read()
	if err != nil {
		return fmt.Errorf("read the FleetPolicy: %w", err)
	}
	document, err := onlyDocument(data)
	if err == nil {
		err = yaml.UnmarshalStrict(document, &f.policy)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.file, err)
	}
	return fleet.Validate(&f.policy)
}

// apply sends the FleetPolicy to the registry, the workflow with the data of the fleet. If the registry is not
// open, apply starts the registry.
func (f *fleetCommand) apply(ctx context.Context, c client.Client, _ []string, out io.Writer) error {
	if _, err := c.DescribeWorkflowExecution(ctx, protocol.FleetRegistryID, ""); err != nil && !temporal.IsNotFound(err) {
		return err
	}
	ctx, cause := temporal.NoteThrottling(ctx)
	handle, err := c.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: c.NewWithStartWorkflowOperation(client.StartWorkflowOptions{
			ID: protocol.FleetRegistryID, TaskQueue: protocol.FleetTaskQueue, WorkflowIDConflictPolicy: enums.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		}, protocol.FleetRegistryWorkflow, protocol.FleetRegistry{}),
		UpdateOptions: client.UpdateWorkflowOptions{
			WorkflowID: protocol.FleetRegistryID, UpdateName: protocol.ApplyPolicyUpdate, WaitForStage: client.WorkflowUpdateStageCompleted,
			Args: []any{protocol.ApplyFleetPolicy{Policy: f.policy, By: os.Getenv("USER")}},
		},
	})
	var result protocol.StepResult
	if err == nil {
		err = handle.Get(ctx, &result)
	}
	return printAnswer(out, &result, cause(err))
}

func (f *fleetCommand) remove(ctx context.Context, c client.Client, args []string, out io.Writer) error {
	if err := send(ctx, c, protocol.FleetRegistryID, protocol.RemoveMemberUpdate, args[0], out); err != nil {
		return err
	}
	ids, err := temporal.FleetIDs(ctx, c)
	if err != nil {
		return err
	}
	for _, id := range ids {
		// A rollout may have ended since the list.
		var ended *serviceerror.NotFound
		if err := c.SignalWorkflow(ctx, id, "", protocol.MembersSignal, nil); err != nil && !errors.As(err, &ended) {
			return fmt.Errorf("tell workflow %s that the cluster has left: %w", id, err)
		}
	}
	return nil
}

// freeze sends a freeze to the registry, which notifies the members within seconds.
func (f *fleetCommand) freeze(ctx context.Context, c client.Client, _ []string, out io.Writer) error {
	freeze := protocol.FleetFreeze{By: os.Getenv("USER"), Reason: f.by.Reason, Until: f.until}
	return send(ctx, c, protocol.FleetRegistryID, protocol.FreezeUpdate, freeze, out)
}

func (f *fleetCommand) unfreeze(ctx context.Context, c client.Client, _ []string, out io.Writer) error {
	return send(ctx, c, protocol.FleetRegistryID, protocol.UnfreezeUpdate, protocol.FleetFreeze{By: os.Getenv("USER"), Reason: f.by.Reason}, out)
}

// memberRow is a member in structured output. Freeze is the text of the column FREEZE.
type memberRow struct {
	protocol.FleetMember
	Freeze string `json:"freeze"`
}

func (f *fleetCommand) members(ctx context.Context, c client.Client, _ []string, out io.Writer) error {
	registry, err := temporal.FleetRegistry(ctx, c)
	if err != nil {
		return err
	}
	members := append([]protocol.FleetMember{}, fleet.PlanOf("", &registry).Members...) // an empty list, not null
	if f.output.Structured() {
		rows := make([]memberRow, len(members))
		for i, member := range members {
			rows[i] = memberRow{member, heardOf(&registry, member.UID)}
		}
		return f.output.Write(out, rows)
	}
	var rows [][]string
	for _, member := range members {
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(member.Labels)) {
			labels = append(labels, key+"="+member.Labels[key])
		}
		rows = append(rows, []string{member.Name, member.UID, strings.Join(labels, ","), heardOf(&registry, member.UID)})
	}
	return printTable(out, []string{"NAME", "UID", "LABELS", "FREEZE"}, rows)
}

// heardOf returns the text of a member in the column FREEZE. The text describes the freeze, or states that
// the member has not yet received the newest start or end of a freeze.
func heardOf(registry *protocol.FleetRegistry, uid string) string {
	switch freeze := registry.Freeze; {
	case freeze == nil:
		return "-"
	case registry.Heard[uid] != freeze.Sequence && freeze.Frozen:
		return "not received yet"
	case registry.Heard[uid] != freeze.Sequence:
		return "end not received yet"
	case !freeze.Frozen:
		return "-"
	case freeze.Until != nil:
		return "until " + freeze.Until.UTC().Format(time.RFC3339)
	}
	return "frozen"
}

// printTable aligns rows in columns. Cells contain texts of users, whose line breaks and tabs would add rows and
// columns.
func printTable(out io.Writer, header []string, rows [][]string) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = view.OneLine(row[i])
		}
	}
	for _, row := range append([][]string{header}, rows...) {
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}
