package main

import (
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
			config, err := options.RESTConfig()
			if err != nil {
				return err
			}
			scheme, err := kube.NewScheme()
			if err == nil {
				err = admissionregistrationv1.AddToScheme(scheme)
			}
			if err != nil {
				return err
			}
			direct, err := client.New(config, client.Options{Scheme: scheme})
			if err != nil {
				return err
			}
			return kube.Uninstallation{Client: direct, SystemNamespace: options.SystemNamespace, Out: cmd.OutOrStdout()}.Run(cmd.Context())
		},
	}
}
