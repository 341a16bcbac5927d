package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
	"github.com/outrigger/outrigger/version"
)

const name = "kubectl-sidecarset"

// shared is what every command has.
type shared struct {
	genericiooptions.IOStreams
	config          *genericclioptions.ConfigFlags
	temporal        temporal.Flags
	keys            codec.Options
	systemNamespace string
	now             func() time.Time
	// cluster returns the cluster that the flags name.
	cluster func() (*cluster, error)
}

// NewCommand returns the root of the commands.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := &shared{IOStreams: streams, config: genericclioptions.NewConfigFlags(true), now: time.Now}
	s.cluster = s.reach
	return s.command()
}

func (s *shared) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-sidecarset",
		Short: "Watch, plan and steer the rollouts of SidecarSets",
		Long: "Watch, plan and steer the rollouts of SidecarSets.\n\n" +
			"What pods do is read from the cluster; what a run does, from Temporal. Without Temporal everything but\n" +
			"pause, resume and the list of runs works.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sidecarset"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.ErrOut)
	s.config.AddFlags(root.PersistentFlags())
	s.temporal.AddTo(root.PersistentFlags())
	s.keys.AddTo(root.PersistentFlags())
	root.PersistentFlags().StringVar(&s.systemNamespace, "system-namespace", v1alpha1.DefaultSystemNamespace, "`namespace` that holds the revisions of SidecarSets")
	root.AddCommand(newList(s), newWhy(s), version.NewCommand())
	for _, cmd := range []*cobra.Command{newStatus(s), newPlan(s), newHistory(s), newDiff(s), newUndo(s), newPause(s), newResume(s), newOpen(s)} {
		s.refuseNamespace(cmd)
		root.AddCommand(cmd)
	}
	return root
}

// refuseNamespace keeps a command about a set from being taken for one about those of its
// pods that are in a namespace.
func (s *shared) refuseNamespace(cmd *cobra.Command) {
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if *s.config.Namespace != "" {
			return fmt.Errorf("--namespace: %s is about the set in all namespaces", cmd.Name())
		}
		if check == nil {
			return nil
		}
		return check(cmd, args)
	}
}

// completeSets offers the names of the SidecarSets as first argument.
func (s *shared) completeSets(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	c, err := s.cluster()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	sets, err := c.sets(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for i := range sets {
		names = append(names, sets[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completionTimeout is how long somebody who presses tab waits.
const completionTimeout = 3 * time.Second
