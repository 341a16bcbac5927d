package main

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/outrigger/outrigger/subcommand"
	"github.com/outrigger/outrigger/temporal"
)

func newTemporal() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "temporal",
		Short: "Set up and clean up a Temporal namespace",
	}
	cmd.AddCommand(newSetup(), newPrune())
	subcommand.Required(cmd)
	return cmd
}

func newSetup() *cobra.Command {
	var f temporal.Flags
	var s temporal.Setup
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create the Temporal namespace and its search attributes, where they are missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.Retention < 24*time.Hour {
				return fmt.Errorf("--retention must be at least a day (24h)")
			}
			return withTemporal(&f, "setup", func(c client.Client, o temporal.Options) error {
				s.Client, s.Namespace, s.Out = c, o.Namespace, cmd.OutOrStdout()
				return s.Run(cmd.Context())
			})
		},
	}
	f.AddTo(cmd.Flags())
	cmd.Flags().DurationVar(&s.Retention, "retention", 72*time.Hour, "retention of completed runs in a new namespace, such as 720h for 30 days")
	cmd.Flags().BoolVar(&s.DryRun, "dry-run", false, "only print what would be done")
	return cmd
}

func newPrune() *cobra.Command {
	var f temporal.Flags
	var p temporal.Prune
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "List and terminate the open runs of a deleted cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withTemporal(&f, "prune", func(c client.Client, o temporal.Options) error {
				p.Client, p.Namespace = c, o.Namespace
				p.In, p.Out = cmd.InOrStdin(), cmd.OutOrStdout()
				return p.Run(cmd.Context())
			})
		},
	}
	f.AddTo(cmd.Flags())
	cmd.Flags().StringVar(&p.Cluster, "cluster-uid", "", "`UID` of the cluster's namespace kube-system, or the --task-queue of its roles")
	cmd.Flags().BoolVar(&p.Yes, "yes", false, "terminate without confirmation")
	return cmd
}

// withTemporal calls do with a client of Temporal, and closes the client.
func withTemporal(f *temporal.Flags, role string, do func(client.Client, temporal.Options) error) error {
	options, err := f.Options(envconfig.EnvLookupOS)
	if err != nil {
		return err
	}
	options.Identity = temporal.Identity(role, envconfig.EnvLookupOS)
	c, err := temporal.NewLazyClient(options, logr.Discard())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := do(c, options); err != nil {
		return fmt.Errorf("Temporal at %s: %w", options.Address, err) //nolint:staticcheck // Temporal is a name
	}
	return nil
}
