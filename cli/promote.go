package cli

import (
	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/api/protocol"
)

func newPromote(s *shared) *cobra.Command {
	return s.requests(protocol.PromoteUpdate, "the history shows", &cobra.Command{
		Use:   "promote NAME",
		Short: "End the current step of a rollout with a RolloutPolicy, or all its steps",
		Long: "End the current step of a rollout with a RolloutPolicy immediately, without its bake time and its approval, and wait\n" +
			"for the answer of its run. With --full, all steps end, and the rollout upgrades all remaining pods.\n\n" +
			"maxUnavailable and partition still apply. With --step, a repeated command ends no later step. A paused rollout continues after it is resumed.",
		Example: `  kubectl sidecarset promote logs                                    # the next step begins
  kubectl sidecarset promote logs --full --reason "security patch"   # no further step limits the rollout`,
	})
}
