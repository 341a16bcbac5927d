package main

import (
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/cli"
)

// newCheck returns the command check of the kubectl plugin, because the image of Outrigger does not contain
// the plugin.
func newCheck(shared *flags) *cobra.Command {
	cmd := cli.NewCheck(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, &shared.Kubeconfig, &shared.SystemNamespace)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// The command prints all errors. Therefore, the logs of libraries are discarded.
		klog.SetLogger(logr.Discard())
		ctrllog.SetLogger(logr.Discard())
		return run(cmd, args)
	}
	return cmd
}
