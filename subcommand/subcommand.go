// Package subcommand rejects the names of subcommands and flags that a command does not have.
package subcommand

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
		return fmt.Errorf("%s has no command %q (%s)", cmd.CommandPath(), args[0], hint(cmd, cmd.SuggestionsFor(args[0])))
	}
}

// FlagHint names the help of a command, and for an unknown flag similar flags of the command.
func FlagHint(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return hint(cmd, nil)
	}
	// cobra compares the names of commands only.
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
