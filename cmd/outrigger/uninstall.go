package main

import (
	"fmt"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/kube"
)

func newUninstall(shared *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "uninstall",
		Short: "End the roles of a cluster; SidecarSets, their definition and their revisions stay",
		Long: "Deletes the webhook configurations, then the Deployments, and has the API server serve SidecarSets without\n" +
			"conversion. What is left of the manifests can then be deleted in any order, all but the CustomResourceDefinition:\n" +
			"all SidecarSets would go with it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := shared.options(args)
			if err != nil {
				return err
			}
			direct, err := directClient(options)
			if err != nil {
				return err
			}
			return kube.Uninstallation{Client: direct, SystemNamespace: options.SystemNamespace, Out: cmd.OutOrStdout()}.Run(cmd.Context())
		},
	}
}

// directClient reads and writes the API server itself, webhook configurations too.
func directClient(options kube.Options) (client.Client, error) {
	config, err := options.RESTConfig()
	if err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register API types: %w", err)
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to cluster %s: %w", config.Host, err)
	}
	return direct, nil
}
