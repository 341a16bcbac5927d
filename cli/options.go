package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newOptions(s *shared) *cobra.Command {
	return &cobra.Command{
		Use:     "options",
		Short:   "List the flags of every command: connections, namespace, keys",
		Example: "  kubectl sidecarset options",
		Args:    takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(s.Out, "Every command has these flags:\n\n%s", cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}

// leaveOutOptions removes the global flags from the help of each command, as in kubectl. The flags are hidden
// only while the help is printed, because completion omits hidden flags.
func leaveOutOptions(root *cobra.Command) {
	usage := root.UsageFunc()
	hide := func(hidden bool) {
		root.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = hidden })
	}
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		hide(true)
		defer hide(false)
		if err := usage(cmd); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStderr(), "\nUse \"%s options\" for the flags of every command.\n", root.CommandPath())
		return err
	})
}
