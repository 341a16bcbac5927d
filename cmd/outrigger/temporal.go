package main

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/outrigger/outrigger/cli"
	"github.com/outrigger/outrigger/subcommand"
	"github.com/outrigger/outrigger/temporal"
)

func newTemporal(shared *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "temporal",
		Short: "Set up and clean up a Temporal namespace, and add TLS to a server",
	}
	cmd.AddCommand(newSetup(), newPrune(), newTLSProxy(shared))
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
				p.In, p.Out = cmd.InOrStdin(), cli.PrintableWriter(cmd.OutOrStdout())
				return p.Run(cmd.Context())
			})
		},
	}
	f.AddTo(cmd.Flags())
	cmd.Flags().StringVar(&p.Cluster, "cluster-uid", "", "`UID` of the namespace kube-system of the deleted cluster, or the value of --task-queue, if Outrigger ran with this flag")
	cmd.Flags().BoolVar(&p.Yes, "yes", false, "terminate without confirmation")
	return cmd
}

func newTLSProxy(shared *flags) *cobra.Command {
	var p temporal.TLSProxy
	cmd := &cobra.Command{
		Use:   "tls-proxy",
		Short: "Accept TLS connections for a Temporal server without TLS on the same host",
		Long: "Forwards TLS connections to a Temporal server that listens on the loopback address without TLS. Clients need a certificate of the CA. " +
			"Listens once the server accepts connections. The chart runs this command beside its embedded Temporal.",
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := shared.options(args)
			if err != nil {
				return err
			}
			p.Log = options.Logger
			return p.Run(cmd.Context())
		},
	}
	set := cmd.Flags()
	set.StringVar(&p.Address, "bind-address", ":7234", "`host:port` to listen on")
	set.StringVar(&p.Server, "server", "127.0.0.1:7233", "`host:port` of the Temporal server")
	set.StringVar(&p.CertFile, "tls-cert-file", "/etc/temporal/tls/tls.crt", "`file` with the certificate, read at each handshake")
	set.StringVar(&p.KeyFile, "tls-private-key-file", "/etc/temporal/tls/tls.key", "`file` with the key of the certificate")
	set.StringVar(&p.CAFile, "client-ca-file", "/etc/temporal/tls/ca.crt", "`file` with the CA of the clients")
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
