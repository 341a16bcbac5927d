package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// aSidecarSet is the first argument of commands about one SidecarSet.
const aSidecarSet = "a SidecarSet"

// takes returns a check of arguments. The check rejects more than most arguments, and fewer arguments than
// required has names. With --all, the check rejects all arguments.
func takes(most int, required ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		most, required := most, required
		if all, err := cmd.Flags().GetBool("all"); err == nil && all {
			most, required = 0, nil
		}
		usage := strings.TrimSuffix(cmd.UseLine(), " [flags]")
		switch {
		case len(args) < len(required):
			return fmt.Errorf("%s: name %s (%s)", nameOf(cmd), required[len(args)], usage)
		case len(args) > most:
			return fmt.Errorf("%s: %q is one argument too many (%s)", nameOf(cmd), args[most], usage)
		}
		return nil
	}
}

// nameOf returns the name of a command. The name of a subcommand begins with the name of the parent command.
func nameOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().CommandPath()+" ")
}
