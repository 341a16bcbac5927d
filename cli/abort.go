package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/output"
)

func newAbort(s *shared) *cobra.Command {
	var request stepRequest
	cmd := s.ofSet(&cobra.Command{
		Use:   "abort NAME",
		Short: "Roll back a rollout in progress without a change of the SidecarSet",
		Long: "Roll back a rollout in progress, and wait for the answer of its run.\n\n" +
			"The pods with the new content go back to the revision whose rollout ended last, within maxUnavailable, and new pods\n" +
			"get this revision. The spec stays as it is, so that a GitOps tool reverts nothing. The content is quarantined until\n" +
			"kubectl sidecarset retry, or until the SidecarSet gets other content. Without such a revision, the rollout is paused.",
		Example: `  kubectl sidecarset abort logs
  kubectl sidecarset abort logs --reason "errors in eu-west"   # status and the history show the reason`,
		Args: takes(1, aSidecarSet),
	})
	cmd.Flags().StringVar(&request.Reason, "reason", "", "`text` that status and the history show")
	addViaCluster(cmd, &request.viaCluster)
	return s.prints(cmd, &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		return s.requestRollback(ctx, c, args[0], protocol.AbortUpdate, request)
	}, output.JSON, output.YAML)
}

func newRetry(s *shared) *cobra.Command {
	var request stepRequest
	cmd := s.ofSet(&cobra.Command{
		Use:   "retry NAME",
		Short: "Begin a rollout again that was rolled back",
		Long: "Begin a rollout again that was rolled back, and wait for the answer of its run. The rollout begins with the first\n" +
			"step of its RolloutPolicy.",
		Example: `  kubectl sidecarset retry logs
  kubectl sidecarset retry logs --reason "registry is back"   # the history shows the reason`,
		Args: takes(1, aSidecarSet),
	})
	cmd.Flags().StringVar(&request.Reason, "reason", "", "`text` that the history shows")
	addViaCluster(cmd, &request.viaCluster)
	return s.prints(cmd, &output.Flag{}, func(ctx context.Context, c *cluster, args []string) (model, error) {
		return s.requestRollback(ctx, c, args[0], protocol.RetryUpdate, request)
	}, output.JSON, output.YAML)
}

// requestRollback sends an abort or a retry to the run of the SidecarSet name, or creates a RolloutAction if
// the flag --via-cluster is set. requestRollback returns the answer.
func (s *shared) requestRollback(ctx context.Context, c *cluster, name, update string, request stepRequest) (model, error) {
	if request.viaCluster {
		return s.act(ctx, c, name, request.action(update))
	}
	set, err := c.set(ctx, name)
	if err != nil {
		return nil, err
	}
	r, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	request.By, request.Generation = c.user(ctx), set.Generation
	var result protocol.StepResult
	_, _, err = r.reach(ctx, set)
	if err == nil {
		if result, err = r.updateStep(ctx, set, update, request.StepRequest); err != nil {
			err = r.explainStep(set, update, request.StepRequest, err)
		}
	}
	if err != nil {
		return nil, failedRequest(update+" "+set.Name, update, set.Name, err)
	}
	s.showPause(ctx, set) // an abort ends a pause
	return stepAnswer{Name: set.Name, StepResult: result, next: nextOfRollout(set)}, nil
}
