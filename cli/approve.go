package cli

import (
	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/api/protocol"
)

func newApprove(s *shared) *cobra.Command {
	return s.requests(protocol.ApproveUpdate, "status and the history show", &cobra.Command{
		Use:   "approve NAME",
		Short: "Approve the current step of a rollout with a RolloutPolicy",
		Long: "Approve the current step of a rollout with a RolloutPolicy, and wait for the answer of its run.\n\n" +
			"The rollout continues once the pods of the step are updated and ready, and its bake time has ended. An approval\n" +
			"applies to one step of one generation. With --step, a repeated command approves no later step.\n" +
			"A paused rollout continues after it is resumed.",
		Example: `  kubectl sidecarset approve logs
  kubectl sidecarset approve logs --reason "error rate is normal"   # the history shows the reason
  kubectl sidecarset approve logs --step 2                          # only if step 2 is the current step
  kubectl sidecarset approve logs -o json                           # the answer of the run as JSON`,
	})
}
