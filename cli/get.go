package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newGet returns the command get, which runs list or status, because users of kubectl expect a command with the
// name get.
func newGet(s *shared) *cobra.Command {
	list, status := newList(s), s.checksTemporalFlags(newStatus(s))
	cmd := &cobra.Command{
		Use:   "get [NAME]",
		Short: "List all SidecarSets as list, or show one as status",
		Example: `  kubectl sidecarset get
  kubectl sidecarset get logs -o wide`,
		Args: takes(1), ValidArgsFunction: s.completeSets,
		RunE: func(cmd *cobra.Command, args []string) error {
			as := list
			if len(args) == 1 {
				as = status
			}
			var err error
			cmd.Flags().Visit(func(f *pflag.Flag) {
				switch {
				case err != nil || cmd.InheritedFlags().Lookup(f.Name) != nil:
				case as.Flags().Lookup(f.Name) == nil:
					err = noSuchFlag(f.Name, as == list)
				default:
					err = as.Flags().Set(f.Name, f.Value.String())
				}
			})
			if err != nil {
				return err
			}
			as.SetContext(cmd.Context())
			if err := as.PreRunE(as, args); err != nil {
				return err
			}
			return as.RunE(as, args)
		},
	}
	cmd.Flags().AddFlagSet(list.Flags())
	cmd.Flags().AddFlagSet(status.Flags())
	return cmd
}

// noSuchFlag returns the error about a flag that list or status lacks. listed is true if get runs list.
func noSuchFlag(flag string, listed bool) error {
	if listed {
		return fmt.Errorf("get without NAME is list, which has no flag --%s: name a SidecarSet, or leave out the flag", flag)
	}
	return fmt.Errorf("get NAME is status, which has no flag --%s: leave out NAME or the flag", flag)
}
