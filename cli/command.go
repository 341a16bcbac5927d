package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.temporal.io/sdk/contrib/envconfig"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/output"
	"github.com/outrigger/outrigger/subcommand"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
	"github.com/outrigger/outrigger/version"
)

const name = "kubectl-sidecarset"

// shared contains the flags and streams of every command.
type shared struct {
	genericiooptions.IOStreams
	config          *genericclioptions.ConfigFlags
	temporal        temporal.Flags
	keys            codec.Options
	systemNamespace string
	// flags contains the flags of every command.
	flags *pflag.FlagSet
	now   func() time.Time
	// cluster returns the cluster that the flags select.
	cluster func() (*cluster, error)
}

// NewCommand returns the root command.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := &shared{IOStreams: streams, config: genericclioptions.NewConfigFlags(true), now: time.Now}
	s.cluster = s.connectCluster
	return s.command()
}

func (s *shared) command() *cobra.Command {
	root := &cobra.Command{
		Use:   name,
		Short: "Watch, plan and steer the rollouts of SidecarSets",
		Long: "Watch, plan and steer the rollouts of SidecarSets.\n\n" +
			"The state of pods is read from the cluster, and the state of runs from Temporal. Without Temporal, pause, resume,\n" +
			"approve, promote, abort, retry and permit fail, and history lists no runs.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sidecarset"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.ErrOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok && invalid.GetFlag().Value.Type() == "int" {
			return fmt.Errorf("--%s %q: use a whole number (see %s --help)", invalid.GetFlag().Name, invalid.GetValue(), cmd.CommandPath())
		}
		example := ""
		if strings.Contains(err.Error(), "time: ") {
			example = ": use a duration such as 90s, 5m or 1h30m"
		}
		return fmt.Errorf("%w%s (%s)", err, example, subcommand.FlagHint(cmd, err))
	})
	s.config.AddFlags(root.PersistentFlags())
	s.temporal.AddTo(root.PersistentFlags())
	s.keys.AddTo(root.PersistentFlags())
	root.PersistentFlags().StringVar(&s.systemNamespace, "system-namespace", v1alpha1.DefaultSystemNamespace, "`namespace` with the revisions of SidecarSets")
	s.flags = root.PersistentFlags()
	versions := version.NewCommand()
	versions.Example = "  kubectl sidecarset version\n  kubectl sidecarset version -o json"
	versions.Args = takes(0)
	root.AddCommand(newList(s), newGet(s), s.checksTemporalFlags(newWhy(s)), s.checksTemporalFlags(newStatus(s)), s.checksTemporalFlags(newPlan(s)),
		s.checksTemporalFlags(newHistory(s)), newDiff(s), newSet(s), newUndo(s), newRestart(s), newPause(s), newResume(s), newApprove(s), newPromote(s), newAbort(s), newRetry(s), newPermit(s), newFreeze(s), newUnfreeze(s), newOpen(s), newCheck(s), newOptions(s), versions)
	for _, cmd := range root.Commands() {
		s.suggestsInErrors(cmd)
	}
	subcommand.Root(root)
	leaveOutOptions(root)
	return root
}

// checksTemporalFlags makes a command fail if the flags of Temporal are invalid. cmd also works while
// Temporal is unavailable. Without this check, cmd would report invalid flags as an outage.
func (s *shared) checksTemporalFlags(cmd *cobra.Command) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := s.temporal.Options(envconfig.EnvLookupOS); err != nil {
			return err
		}
		return run(cmd, args)
	}
	return cmd
}

// ofSet adds the completion of names to a command about one SidecarSet. The command rejects --namespace,
// because a user could expect that --namespace selects pods of the SidecarSet.
func (s *shared) ofSet(cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgsFunction = s.completeSets
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if *s.config.Namespace != "" {
			return fmt.Errorf("remove --namespace: %s is about the pods of the SidecarSet in all namespaces", nameOf(cmd))
		}
		return nil
	}
	return cmd
}

// reader returns the model that a command prints. A reader may return both a model and an error.
type reader func(ctx context.Context, c *cluster, args []string) (model, error)

// prints adds the output flags to cmd, and makes cmd print the model that read returns.
func (s *shared) prints(cmd *cobra.Command, o *output.Flag, read reader, formats ...string) *cobra.Command {
	o.Add(cmd, formats...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := s.cluster()
		if err != nil {
			return err
		}
		model, err := read(cmd.Context(), c, args)
		if model != nil {
			if err := s.print(*o, model); err != nil {
				return err
			}
		}
		return err
	}
	return cmd
}

// completeSets completes the first argument with the names of the SidecarSets.
func (s *shared) completeSets(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
	defer cancel()
	c, err := s.cluster()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	sets, err := c.sets(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return setNames(sets), cobra.ShellCompDirectiveNoFileComp
}
