// Command node keeps a real node running: a control plane, Temporal, Outrigger, containerd, a kubelet and a
// registry, in separate Linux namespaces (docs/real-node.md).
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{
		Use: "node", Short: "Keep a real node running", SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	enter := &cobra.Command{Use: "shell [command...]", Short: "Run a shell or a command in the namespaces of the node", RunE: func(_ *cobra.Command, args []string) error {
		return shell(args)
	}}
	enter.Flags().SetInterspersed(false) // The flags belong to the command that shell runs.
	root.AddCommand(
		enter,
		&cobra.Command{Use: "up", Short: "Start the node, and leave it running", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return up(cmd.OutOrStdout())
		}},
		&cobra.Command{Use: "down", Short: "Stop the node, and remove its files", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			return down()
		}},
		&cobra.Command{Use: runCommand, Hidden: true, Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			return run()
		}},
	)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}
