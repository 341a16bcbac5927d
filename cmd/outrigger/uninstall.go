package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/crd"
)

func newUninstall(shared *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the roles of a cluster; SidecarSets, their definition and their revisions stay",
		Long: "Deletes the webhook configurations, then the Deployments, and makes the API server serve SidecarSets without\n" +
			"conversion. All other manifests can then be deleted in any order. Keep the CustomResourceDefinition: its\n" +
			"deletion deletes all SidecarSets.",
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := shared.options(args)
			if err != nil {
				return err
			}
			direct, err := directClient(options)
			if err != nil {
				return err
			}
			return crd.Uninstallation{Client: direct, SystemNamespace: options.SystemNamespace, Out: cmd.OutOrStdout()}.Run(cmd.Context())
		},
	}
}

// directClient returns a client that reads from the API server, without a cache.
func directClient(options kube.Options) (client.Client, error) {
	config, err := options.RESTConfig()
	if err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to cluster %s: %w", config.Host, err)
	}
	return direct, nil
}
