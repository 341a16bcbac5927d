package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/crd"
	"github.com/outrigger/outrigger/output"
)

func newUninstall(shared *flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove the roles of a cluster; SidecarSets, their definition and their revisions stay",
		Long: "Deletes the webhook configurations, then the Deployments, and makes the API server serve SidecarSets without\n" +
			"conversion. All other manifests can then be deleted in any order. Keep the CustomResourceDefinition: its\n" +
			"deletion deletes all SidecarSets. At a terminal, the command first names the cluster and asks.",
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := shared.options(args)
			if err != nil {
				return err
			}
			config, err := options.RESTConfig()
			if err != nil {
				return err
			}
			if in, ok := cmd.InOrStdin().(*os.File); !yes && ok && term.IsTerminal(int(in.Fd())) {
				if err := confirmUninstall(in, cmd.OutOrStdout(), config.Host, options.SystemNamespace); err != nil {
					return err
				}
			}
			direct, err := directClient(options)
			if err != nil {
				return err
			}
			return crd.Uninstallation{Client: direct, SystemNamespace: options.SystemNamespace, Out: cmd.OutOrStdout()}.Run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "uninstall without confirmation")
	return cmd
}

// confirmUninstall asks for confirmation, and returns an error unless the answer is yes.
func confirmUninstall(in io.Reader, out io.Writer, server, namespace string) error {
	agreed, err := output.Confirm(in, out, fmt.Sprintf("Remove Outrigger from the cluster at %s, namespace %s?", server, namespace))
	if err == nil && !agreed {
		err = errors.New("nothing was removed")
	}
	return err
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
