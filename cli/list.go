package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/output"
)

// behind contains the flags of list that select pods.
type behind struct {
	outdated, missing bool
	// namespace is empty for all namespaces.
	namespace string
}

func newList(s *shared) *cobra.Command {
	var o output.Flag
	var b behind
	var everywhere, watch bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"},
		Short: "List all SidecarSets, or the pods that are behind",
		Long: "List all SidecarSets. With --outdated, list the pods that have an older version of a SidecarSet. With --missing, list\n" +
			"the pods that match a SidecarSet and were not injected. The flag -n selects one namespace of pods.",
		Example: `  kubectl sidecarset list -o wide              # with revisions, images and messages
  kubectl sidecarset list -w                   # each change, until the command is interrupted
  kubectl sidecarset list --outdated -n shop   # pods of a namespace
  kubectl sidecarset list --missing            # pods of all namespaces`,
		Args: takes(0),
	}
	cmd.Flags().BoolVar(&b.outdated, "outdated", false, "list pods that have an older version")
	cmd.Flags().BoolVar(&b.missing, "missing", false, "list pods that match and were not injected")
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "list pods of all namespaces, also with -n")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show each change of a SidecarSet")
	return s.prints(cmd, &o, func(ctx context.Context, c *cluster, _ []string) (model, error) {
		ofPods := b.outdated || b.missing
		if err := s.scope(&b, everywhere); err != nil {
			return nil, err
		}
		switch {
		case watch && ofPods:
			return nil, errors.New("--watch shows SidecarSets: leave out --outdated and --missing")
		case watch:
			return nil, s.watchList(ctx, c, o)
		}
		if b.namespace != "" && c.lacksNamespace(ctx, b.namespace) {
			return nil, noNamespace(b.namespace)
		}
		sets, err := c.sets(ctx)
		switch {
		case err != nil:
			return nil, err
		case !ofPods:
			return s.list(c.listInput(ctx, sets, s.askRuns), o), nil
		}
		found, err := s.behind(ctx, c, b, sets)
		if err != nil {
			err = fmt.Errorf("not all is listed: %w", err)
		}
		if len(found) == 0 && err != nil && !o.Structured() {
			return nil, err
		}
		return found, err
	}, output.Wide, output.JSON, output.YAML)
}

// list returns the summaries of the SidecarSets, with the line about a fault of the installation. For
// structured output, list writes this line to ErrOut instead.
func (s *shared) list(in *view.ListInput, o output.Flag) model {
	all := view.NewSummaries(in)
	if !o.Structured() {
		return listed{Summaries: all, note: in.Fault.Line()}
	}
	_, _ = fmt.Fprint(s.ErrOut, s.suggested(in.Fault.Line()))
	return all
}

// answers is a function that queries the runs of SidecarSets, and returns a map from the name of each SidecarSet
// to the result.
type answers func(context.Context, []v1alpha1.SidecarSet) map[string]view.RunInput

// listInput reads the runs, nodes, pods and faults that the status of SidecarSets does not show yet.
func (c *cluster) listInput(ctx context.Context, sets []v1alpha1.SidecarSet, ask answers) *view.ListInput {
	in := &view.ListInput{Sets: sets, Now: time.Now()}
	var reads sync.WaitGroup
	reads.Go(func() { in.Runs = ask(ctx, sets) })
	reads.Go(func() { in.Lost = c.lostNodes(ctx, sets, in.Now) })
	reads.Go(func() { in.Waiting = c.waitingPods(ctx, sets) })
	reads.Go(func() { in.Fault = c.fault(ctx, in.Now) })
	reads.Wait()
	in.Fault = c.webhookFault(ctx, c.correct(ctx, in.Fault, slices.Collect(maps.Values(in.Runs))...), sets...)
	return in
}

// scope sets the namespace of the listed pods.
func (s *shared) scope(b *behind, everywhere bool) error {
	b.namespace = *s.config.Namespace
	ofPods := b.outdated || b.missing
	if !ofPods && b.namespace != "" {
		return errors.New("--namespace needs --outdated or --missing: SidecarSets are in no namespace")
	}
	if everywhere && !ofPods {
		_, _ = fmt.Fprintln(s.ErrOut, "Note: --all-namespaces has no effect without --outdated or --missing: SidecarSets are in no namespace")
	}
	if everywhere {
		b.namespace = ""
	}
	return nil
}

// behind returns the pods that the flags select. behind may return both pods and an error. If one SidecarSet
// is invalid, behind continues with the other SidecarSets. If a list of pods fails, behind stops, because the
// lists for the other SidecarSets would fail, too.
func (s *shared) behind(ctx context.Context, c *cluster, b behind, sets []v1alpha1.SidecarSet) (view.BehindPods, error) {
	found, errs := view.BehindPods{}, []error{}
	var webhook view.Webhook
	if b.missing {
		webhook = s.webhook(ctx, c)
	}
	labels := c.namespaceLabels(ctx)
	for i := range sets {
		set := &sets[i]
		if _, err := match.NewScope(&set.Spec); err != nil {
			errs = append(errs, fmt.Errorf("SidecarSet %s: %w", set.Name, err))
			continue
		}
		in, err := c.input(ctx, set, b.namespace)
		if err != nil {
			errs = append(errs, err)
			break
		}
		in.NamespaceLabels, in.Webhook = labels, webhook
		if b.outdated {
			old, err := view.Outdated(in)
			found, errs = append(found, old...), append(errs, err)
		}
		if b.missing {
			missing, err := view.Missing(in)
			found, errs = append(found, missing...), append(errs, err)
		}
	}
	return found, errors.Join(errs...)
}
