package cli

import (
	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/api/protocol"
)

func newAbort(s *shared) *cobra.Command {
	return s.requests(protocol.AbortUpdate, "status and the history show", &cobra.Command{
		Use:   "abort NAME",
		Short: "Roll back a rollout in progress without a change of the SidecarSet",
		Long: "Roll back a rollout in progress, and wait for the answer of its run.\n\n" +
			"The pods with the new content go back to the revision whose rollout ended last, within maxUnavailable, and new pods\n" +
			"get this revision. The spec stays as it is, so that a GitOps tool reverts nothing. The content is quarantined until\n" +
			"kubectl sidecarset retry, or until the SidecarSet gets other content. Without such a revision, the rollout is paused.",
		Example: `  kubectl sidecarset abort logs
  kubectl sidecarset abort logs --reason "errors in eu-west"   # status and the history show the reason`,
	})
}

func newRetry(s *shared) *cobra.Command {
	return s.requests(protocol.RetryUpdate, "the history shows", &cobra.Command{
		Use:   "retry NAME",
		Short: "Restart a rollout that was rolled back",
		Long: "Restart a rollout that was rolled back, and wait for the answer of its run. The rollout starts from the first step of\n" +
			"its RolloutPolicy.",
		Example: `  kubectl sidecarset retry logs
  kubectl sidecarset retry logs --reason "registry is back"   # the history shows the reason`,
	})
}
