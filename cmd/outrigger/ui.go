package main

import (
	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
	"github.com/outrigger/outrigger/ui"
)

func newUI(shared *flags) *cobra.Command {
	var o ui.Options
	var f temporal.Flags
	var keys codec.Options
	var fleet bool
	var connection temporal.FleetFlags
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve read-only pages about the SidecarSets of the cluster and about its fleet",
		Long: "Serves pages about the SidecarSets of the cluster and about its fleet, which change nothing. On loopback, every client of this host or pod " +
			"can read them, for example through kubectl port-forward. At another address, each request needs a bearer token of a user that may list " +
			"SidecarSets in the whole cluster; the page of a SidecarSet also needs the right to list pods.",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if o.Options, err = shared.options(args); err != nil {
				return err
			}
			// By default, the UI runs on the machine of a user, where no client reads metrics or probes.
			if !cmd.Flags().Changed("metrics-bind-address") {
				o.MetricsAddress = "0"
			}
			if !cmd.Flags().Changed("health-probe-bind-address") {
				o.HealthAddress = "0"
			}
			if o.Temporal, err = f.ProcessOptions("ui", keys); err != nil {
				return err
			}
			if err = needFleet(fleet, &connection); err != nil {
				return err
			}
			if fleet {
				options, err := connection.Options(o.Temporal)
				if err != nil {
					return err
				}
				o.Fleet = &options
			}
			setGCPercent(cacheGCPercent)
			return ui.Run(cmd.Context(), o)
		},
	}
	f.AddTo(cmd.Flags())
	keys.AddTo(cmd.Flags())
	set := cmd.Flags()
	set.StringVar(&o.Address, "bind-address", "127.0.0.1:8089", "`host:port` to listen on; an address other than loopback needs a certificate, and a bearer token with each request")
	set.StringVar(&o.CertFile, "tls-cert-file", "", "`file` with the server's certificate, read at each handshake; empty: no TLS")
	set.StringVar(&o.KeyFile, "tls-private-key-file", "", "`file` with the key of the certificate")
	set.StringVar(&o.TemporalUI, "temporal-ui-url", "", "`URL` of the Temporal UI, for links to runs; empty: the URLs of runs in status")
	set.BoolVar(&fleet, "fleet", false, "also serve a page about the rollouts of the fleet")
	connection.AddTo(set)
	return cmd
}
