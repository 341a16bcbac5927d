package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// aSidecarSet is the first argument of commands about one SidecarSet.
const aSidecarSet = "a SidecarSet"

// takes accepts the required arguments, and at most a number of arguments. With --all, it accepts
// none.
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

// nameOf is the name of a command, with the name of the command that it belongs to.
func nameOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().CommandPath()+" ")
}
