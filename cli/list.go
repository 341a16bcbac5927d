package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/output"
)

// behind are the flags of the command that ask for pods.
type behind struct {
	outdated, missing bool
	// namespace is empty for all.
	namespace string
}

func newList(s *shared) *cobra.Command {
	var o output.Flag
	var b behind
	var everywhere bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all sets, or the pods that are behind",
		Long: "List all sets; with --outdated the pods that hold an older version of a set, and with --missing those that\n" +
			"match a set and were not injected: in all namespaces, or in that of -n.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ofPods := b.outdated || b.missing
			if b.namespace = *s.config.Namespace; !ofPods && (b.namespace != "" || everywhere) {
				return errors.New("--namespace and --all-namespaces need --outdated or --missing: sets are in no namespace")
			}
			if everywhere {
				b.namespace = ""
			}
			c, err := s.cluster()
			if err != nil {
				return err
			}
			if ofPods {
				return s.listBehind(cmd.Context(), c, b, o)
			}
			model, err := c.summaries(cmd.Context())
			if err != nil {
				return err
			}
			return s.print(o, model)
		},
	}
	o.Add(cmd, output.Wide, output.JSON, output.YAML)
	cmd.Flags().BoolVar(&b.outdated, "outdated", false, "list pods that hold an older version")
	cmd.Flags().BoolVar(&b.missing, "missing", false, "list pods that match and were not injected")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "list pods of all namespaces, also with -n")
	return cmd
}

func (c *cluster) summaries(ctx context.Context) (view.Summaries, error) {
	sets, err := c.sets(ctx)
	if err != nil {
		return nil, err
	}
	return view.NewSummaries(sets), nil
}

// listBehind prints what was found, and fails if there may be more.
func (s *shared) listBehind(ctx context.Context, c *cluster, b behind, o output.Flag) error {
	sets, err := c.sets(ctx)
	if err != nil {
		return err
	}
	var webhook view.Webhook
	if b.missing {
		webhook = s.webhook(ctx, c)
	}
	found, unread := c.behind(ctx, b, sets, webhook)
	if len(found) > 0 || unread == nil || o.Structured() {
		if err := s.print(o, found); err != nil {
			return err
		}
	}
	if unread != nil {
		return fmt.Errorf("not all is listed: %w", unread)
	}
	return nil
}

// behind returns what it found also beside an error. A set that cannot be read does not
// keep the others from being listed; pods that cannot be listed for one can be for none.
func (c *cluster) behind(ctx context.Context, b behind, sets []v1alpha1.SidecarSet, webhook view.Webhook) (view.BehindPods, error) {
	found, errs := view.BehindPods{}, []error{}
	labels := c.namespaceLabels(ctx)
	for i := range sets {
		set := &sets[i]
		if _, err := match.NewScope(&set.Spec); err != nil {
			errs = append(errs, fmt.Errorf("SidecarSet %s: %w", set.Name, err))
			continue
		}
		pods, err := c.pods(ctx, set, b.namespace)
		if err != nil {
			errs = append(errs, err)
			break
		}
		if b.outdated {
			old, err := view.Outdated(set, pods, labels)
			found, errs = append(found, old...), append(errs, err)
		}
		if b.missing {
			lacking, err := view.Missing(set, pods, labels, c.systemNamespace, webhook)
			found, errs = append(found, lacking...), append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}
