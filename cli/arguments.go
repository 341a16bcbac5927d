package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// aSidecarSet is the name, in error messages, of the first argument of a command about one SidecarSet.
const aSidecarSet = "a SidecarSet"

// takes returns an argument check that accepts from len(required) to most arguments. required contains the
// names of the arguments for error messages. With --all, the check accepts no arguments.
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
