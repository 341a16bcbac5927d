// Command stack runs the local stack. The stack consists of a control plane with simulated nodes,
// a Temporal server and the roles of Outrigger. All programs are in bin/.
package main

import (
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

func main() {
	ctrllog.SetLogger(logr.Discard()) // The command prints its own errors.
	// A second Ctrl-C ends this process, and the kernel kills the child processes.
	if err := newCommand().ExecuteContext(signals.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "stack:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var at stateDir
	root := &cobra.Command{
		Use:           "stack",
		Short:         "Run Kubernetes, Temporal and Outrigger on this machine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar((*string)(&at), "dir", ".run", "directory of the stack's state")
	root.AddCommand(
		upCommand(&at), demoCommand(&at), fleetDemoCommand(&at), downCommand(&at), statusCommand(&at),
		controlCommand(&at, "stop", "End a process with SIGTERM"),
		controlCommand(&at, "kill", "End a process with SIGKILL"),
		controlCommand(&at, "start", "Start a process again"),
		runCommand(),
	)
	return root
}

// command returns a subcommand without arguments.
func command(use, short string, run func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: run}
}
