package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/cli/output"
	"github.com/outrigger/outrigger/cli/view"
)

func newList(s *shared) *cobra.Command {
	var o output.Flag
	var outdated, missing bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all sets, or the pods that are behind",
		Long: "List all sets; with --outdated the pods that hold an older version of a set, and with --missing those that\n" +
			"match a set and were not injected.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			var model text
			if outdated || missing {
				model, err = c.behind(cmd.Context(), outdated, missing)
			} else {
				model, err = c.summaries(cmd.Context())
			}
			if err != nil {
				return err
			}
			return s.print(o, model)
		},
	}
	o.Add(cmd, output.Wide, output.JSON, output.YAML)
	cmd.Flags().BoolVar(&outdated, "outdated", false, "list pods that hold an older version")
	cmd.Flags().BoolVar(&missing, "missing", false, "list pods that match and were not injected")
	return cmd
}

func (c *cluster) summaries(ctx context.Context) (view.Summaries, error) {
	sets, err := c.sets(ctx)
	if err != nil {
		return nil, err
	}
	return view.NewSummaries(sets), nil
}

func (c *cluster) behind(ctx context.Context, outdated, missing bool) (view.BehindPods, error) {
	sets, err := c.sets(ctx)
	if err != nil {
		return nil, err
	}
	found := view.BehindPods{}
	labels := c.namespaceLabels(ctx)
	for i := range sets {
		pods, err := c.pods(ctx, &sets[i])
		if err != nil {
			return nil, err
		}
		if outdated {
			old, err := view.Outdated(&sets[i], pods, labels)
			if err != nil {
				return nil, err
			}
			found = append(found, old...)
		}
		if missing {
			lacking, err := view.Missing(&sets[i], pods, labels, c.systemNamespace)
			if err != nil {
				return nil, err
			}
			found = append(found, lacking...)
		}
	}
	return found, nil
}
