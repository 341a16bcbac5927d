// Package subcommand creates the errors for unknown names of subcommands and flags.
package subcommand

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Required configures a command that has only subcommands. Without arguments, the command prints its help.
// For an unknown subcommand, the command returns an error that names similar subcommands and the help.
func Required(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2 // cobra sets this default only for the root command
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("%s has no command %q (%s)", cmd.CommandPath(), args[0], hint(cmd, cmd.SuggestionsFor(args[0])))
	}
}

// FlagHint returns the suffix of an error about a flag. The suffix names the help of the command and, if the
// flag is unknown, similar flags.
func FlagHint(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return hint(cmd, nil)
	}
	// cobra suggests only names of commands, so FlagHint creates a command for each flag.
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			flags.AddCommand(&cobra.Command{Use: "--" + flag.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	return hint(cmd, flags.SuggestionsFor("--"+unknown.GetSpecifiedName()))
}

func hint(cmd *cobra.Command, similar []string) string {
	help := fmt.Sprintf("see %s --help", cmd.CommandPath())
	if len(similar) == 0 {
		return help
	}
	return fmt.Sprintf("did you mean %s? %s", strings.Join(similar, " or "), help)
}

// Root applies Required to the root, and to each subcommand that has subcommands but no action. Root first adds
// the completion command, because cobra would add this command only when the root is executed.
func Root(root *cobra.Command) {
	Required(root)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.HasSubCommands() && cmd.RunE == nil && cmd.Run == nil {
			Required(cmd)
		}
	}
}
