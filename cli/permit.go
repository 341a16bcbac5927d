package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/output"
)

func newPermit(s *shared) *cobra.Command {
	var reason string
	cmd := s.ofSet(&cobra.Command{
		Use:   "permit NAME",
		Short: "Let a rollout begin that waits for a permit of its fleet",
		Long: "Let a rollout begin in this cluster without its fleet, and wait for the answer of its run.\n\n" +
			"The command creates a RolloutAction, which the operator carries out. The permit is for the content that the SidecarSet\n" +
			"has now. The histories of the run and of the fleet show the user and the reason.",
		Example: `  kubectl sidecarset permit logs --reason "hotfix, the fleet is down"`,
		Args:    takes(1, aSidecarSet),
	})
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that both histories show; required")
	return s.prints(cmd, &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		if reason == "" {
			return nil, errors.New("a permit needs a --reason")
		}
		return s.act(ctx, c, args[0], outriggerv1.RolloutActionSpec{Verb: outriggerv1.VerbPermit, Reason: reason})
	}, output.JSON, output.YAML)
}
