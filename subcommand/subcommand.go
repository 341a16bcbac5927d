// Package subcommand rejects the names of subcommands that a command does not have.
package subcommand

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Required makes a command without an action of its own print its help if it has no arguments. Any
// other name than that of a subcommand is an error, which names similar subcommands and the help.
func Required(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2 // the default of cobra, which it sets for roots only
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		hint := fmt.Sprintf("see %s --help", cmd.CommandPath())
		if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
			hint = fmt.Sprintf("did you mean %s? %s", strings.Join(similar, " or "), hint)
		}
		return fmt.Errorf("%s has no command %q (%s)", cmd.CommandPath(), args[0], hint)
	}
}

// Root is Required for a root. It adds the completion command of cobra first, because cobra itself adds
// the command only when the root is executed.
func Root(root *cobra.Command) {
	Required(root)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() && cmd.RunE == nil && cmd.Run == nil {
			Required(cmd)
		}
	}
}
