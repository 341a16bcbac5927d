package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/output"
)

const aFreeze = "a RolloutFreeze"

type freezeFlags struct {
	selector, reason string
	end              FreezeEnd
	all              bool
}

func newFreeze(s *shared) *cobra.Command {
	var flags freezeFlags
	cmd := &cobra.Command{
		Use:   "freeze NAME (--selector LABELS | --all) [--reason TEXT]",
		Short: "Stop the upgrades of many SidecarSets until a time, or until unfreeze",
		Long: "Create a RolloutFreeze, which stops the upgrades of the selected SidecarSets. Upgrades stop within two seconds after the\n" +
			"RolloutFreeze is created. Hot upgrades in progress finish. Rollouts that start during the freeze wait.\n" +
			"The rollouts continue by themselves at the end of the freeze, or after kubectl sidecarset unfreeze NAME. A freeze is\n" +
			"an object of the cluster, and needs no Temporal.",
		Example: `  kubectl sidecarset freeze black-friday --all --reason "sales" --until 2026-11-28T00:00:00Z
  kubectl sidecarset freeze edge --selector tier=edge --for 2h --reason "incident 42"
  kubectl sidecarset freeze edge --selector tier=edge   # until unfreeze`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch usage := strings.TrimSuffix(cmd.UseLine(), " [flags]"); {
			case len(args) == 0:
				return fmt.Errorf("freeze: name the RolloutFreeze that is created (%s)", usage)
			case len(args) > 1:
				return fmt.Errorf("freeze: %q is one argument too many (%s)", args[1], usage)
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVarP(&flags.selector, "selector", "l", "", "`labels` of the SidecarSets, as in kubectl get -l")
	cmd.Flags().BoolVar(&flags.all, "all", false, "all SidecarSets, including SidecarSets that are created later")
	cmd.Flags().StringVar(&flags.reason, "reason", "", "`text` that status, conditions and the run show")
	flags.end.AddTo(cmd.Flags())
	return s.prints(cmd, &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		freeze, err := flags.freeze(args[0], s.now())
		if err != nil {
			return nil, err
		}
		return c.freeze(ctx, freeze)
	}, output.JSON, output.YAML)
}

// freeze returns the RolloutFreeze that the flags describe.
func (f *freezeFlags) freeze(name string, now time.Time) (*outriggerv1.RolloutFreeze, error) {
	freeze := &outriggerv1.RolloutFreeze{ObjectMeta: metav1.ObjectMeta{Name: name}}
	freeze.Spec.Reason = f.reason
	if f.all == (f.selector != "") {
		return nil, errors.New("freeze: name the SidecarSets, either with --selector or with --all")
	}
	if f.selector != "" {
		selector, err := metav1.ParseToLabelSelector(f.selector)
		if err != nil {
			return nil, fmt.Errorf("--selector: %w: use labels such as tier=edge, or \"tier in (edge, core)\"", err)
		}
		// For several requirements such as tier=edge,tier=core, ParseToLabelSelector keeps only the last value,
		// so the contradiction is only visible in the requirements.
		requirements, _ := labels.ParseToRequirements(f.selector)
		if label := stage.Contradiction(requirements); label != "" {
			return nil, fmt.Errorf("--selector %q selects nothing, because its requirements for label %s exclude each other: use one of them, or \"%[2]s in (…)\" with all values", f.selector, label)
		}
		freeze.Spec.Selector = *selector
	}
	until, err := f.end.Time(now)
	if err != nil {
		return nil, err
	}
	if until != nil {
		freeze.Spec.Until = &metav1.Time{Time: *until}
	}
	return freeze, nil
}

func (c *cluster) freeze(ctx context.Context, freeze *outriggerv1.RolloutFreeze) (model, error) {
	sets, err := c.sets(ctx)
	if err != nil {
		return nil, err
	}
	err = c.live.Create(ctx, freeze, client.FieldOwner(name))
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("there is a RolloutFreeze %s already: choose another name, or delete it: kubectl sidecarset unfreeze %s", freeze.Name, freeze.Name)
	}
	if err != nil {
		return nil, explainFreezes(err, "create RolloutFreeze "+freeze.Name)
	}
	done := &frozen{Name: freeze.Name, Until: freeze.Spec.Until}
	for i := range sets {
		if set := &sets[i]; stage.Freezes(freeze, set) {
			done.SidecarSets++
			if rolls(set) {
				done.InProgress++
			}
		}
	}
	return done, nil
}

// rolls reports whether the status of a SidecarSet shows a rollout that has pods left to upgrade.
func rolls(set *v1alpha1.SidecarSet) bool {
	return meta.IsStatusConditionTrue(set.Status.Conditions, v1alpha1.ConditionProgressing) && set.Status.UpdatedPods < set.Status.MatchedPods
}

// explainFreezes adds the failed action and, if a remedy is known, the remedy to an error about
// RolloutFreezes.
func explainFreezes(err error, action string) error {
	if kube.MissingKind(err) {
		return fmt.Errorf("%s: this cluster does not know RolloutFreezes (CRD rolloutfreezes.outrigger.io): install the definitions of this release", action)
	}
	return explain(err, action)
}

// frozen is the output of the command freeze.
type frozen struct {
	Name  string       `json:"name"`
	Until *metav1.Time `json:"until,omitempty"`
	// SidecarSets is the number of selected SidecarSets. InProgress is the number of selected SidecarSets
	// whose status shows a rollout in progress.
	SidecarSets int `json:"sidecarSets"`
	InProgress  int `json:"rolloutsInProgress"`
}

func (f *frozen) Text(view.Style) string {
	until := ""
	if f.Until != nil {
		until = " until " + f.Until.UTC().Format(time.RFC3339)
	}
	effect := "no SidecarSet has these labels; the freeze applies to SidecarSets that get them"
	switch {
	case f.InProgress > 0:
		effect = fmt.Sprintf("%s, %s in progress stop within 2 seconds", rollout.Count(f.SidecarSets, "SidecarSet"), rollout.Count(f.InProgress, "rollout"))
	case f.SidecarSets > 0:
		effect = rollout.Count(f.SidecarSets, "SidecarSet") + ", no rollout in progress"
	}
	return fmt.Sprintf("rolloutfreeze/%s created\nfrozen%s: %s\nnext: kubectl sidecarset unfreeze %s\n", f.Name, until, effect, f.Name)
}

func newUnfreeze(s *shared) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "unfreeze (NAME | --all)",
		Short: "Delete a RolloutFreeze, or all of them, so that the rollouts continue",
		Example: `  kubectl sidecarset unfreeze black-friday
  kubectl sidecarset unfreeze --all`,
		Args:              takes(1, aFreeze),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete all RolloutFreezes instead of one")
	return s.prints(cmd, &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		if all {
			args = nil
		}
		return c.unfreeze(ctx, args, s.now())
	}, output.JSON, output.YAML)
}

// unfreeze deletes the freezes in names, or all freezes if names is empty.
func (c *cluster) unfreeze(ctx context.Context, names []string, now time.Time) (model, error) {
	before, err := c.freezes(ctx)
	if err != nil {
		return nil, err
	}
	isNamed := func(freeze outriggerv1.RolloutFreeze) bool {
		return len(names) == 0 || slices.Contains(names, freeze.Name)
	}
	if len(names) > 0 && !slices.ContainsFunc(before, isNamed) {
		return nil, fmt.Errorf("there is no RolloutFreeze %q; %s", names[0], otherFreezes(before))
	}
	done := &unfrozen{Deleted: []string{}}
	for i := range before {
		if freeze := &before[i]; isNamed(*freeze) {
			if err := client.IgnoreNotFound(c.live.Delete(ctx, freeze)); err != nil {
				return nil, explainFreezes(err, "delete RolloutFreeze "+freeze.Name)
			}
			done.Deleted = append(done.Deleted, freeze.Name)
		}
	}
	after, err := c.freezes(ctx)
	if err != nil {
		return nil, err
	}
	sets, err := c.sets(ctx)
	if err != nil {
		return nil, err
	}
	for i := range sets {
		switch set := &sets[i]; {
		case stage.FreezeOf(set, after, now) != nil:
			done.StillFrozen++
		case stage.FreezeOf(set, before, now) != nil:
			done.SidecarSets++
		}
	}
	return done, nil
}

func (c *cluster) freezes(ctx context.Context) ([]outriggerv1.RolloutFreeze, error) {
	var list outriggerv1.RolloutFreezeList
	if err := c.live.List(ctx, &list); err != nil {
		return nil, explainFreezes(err, "list RolloutFreezes")
	}
	slices.SortFunc(list.Items, func(a, b outriggerv1.RolloutFreeze) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

func otherFreezes(freezes []outriggerv1.RolloutFreeze) string {
	if len(freezes) == 0 {
		return "there are no RolloutFreezes"
	}
	var names []string
	for i := range freezes {
		names = append(names, freezes[i].Name)
	}
	return "RolloutFreezes: " + strings.Join(names, ", ")
}

// unfrozen is the output of the command unfreeze.
type unfrozen struct {
	Deleted []string `json:"deleted"`
	// SidecarSets is the number of SidecarSets that were frozen, and that no freeze selects after the
	// deletion. StillFrozen is the number of SidecarSets that other freezes select.
	SidecarSets int `json:"sidecarSets"`
	StillFrozen int `json:"stillFrozen"`
}

func (u *unfrozen) Text(view.Style) string {
	if len(u.Deleted) == 0 {
		return "there are no RolloutFreezes\n"
	}
	var out strings.Builder
	for _, name := range u.Deleted {
		fmt.Fprintf(&out, "rolloutfreeze/%s deleted\n", name)
	}
	fmt.Fprintf(&out, "%s unfrozen; rollouts continue\n", rollout.Count(u.SidecarSets, "SidecarSet"))
	if u.StillFrozen > 0 {
		fmt.Fprintf(&out, "%s still frozen by other RolloutFreezes: kubectl get rolloutfreezes\n", rollout.Count(u.StillFrozen, "SidecarSet"))
	}
	return out.String()
}
