package activities

import (
	"context"

	"go.temporal.io/sdk/activity"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/stage"
)

// reportStage notifies the operator once if status does not show the stage of the run, for example after an
// abort, or does not show whether the run is paused. The operator then updates status immediately. Without the
// notification, the webhook would inject new pods based on an outdated status. reportStage only logs an error,
// because the operator also reads the run every few seconds.
func (n *nextBatch) reportStage(ctx context.Context) {
	asked := n.input.Stage
	if n.stageReported || !n.input.Stages {
		return
	}
	set, err := n.set.get(ctx)
	if err != nil || set == nil || (asked == nil || stage.Recorded(set, asked)) && n.pauseRecorded(set) {
		return // the following call of check returns the error
	}
	n.stageReported = true
	info := activity.GetInfo(ctx)
	lease := n.lease(n.input.SidecarSet, leaseIdentity(ctx, n.input.Run))
	if err := lease.reportStage(ctx, info.WorkflowExecution.RunID+"/"+info.ActivityID); err != nil {
		activity.GetLogger(ctx).Info("the operator is not notified of the stage of the run; its next check finds the stage", "sidecarset", set.Name, "cause", err.Error())
	}
}

// pauseRecorded reports whether status and the run agree whether the run is paused by signal or update.
func (n *nextBatch) pauseRecorded(set *v1alpha1.SidecarSet) bool {
	shown := set.Status.Rollout != nil && set.Status.Rollout.Pause != nil
	return shown == n.input.Paused
}

// reportStage writes id into the Lease of the SidecarSet, and creates the Lease if the Lease does not exist. The
// operator watches Leases, so the write notifies the operator.
func (l *rolloutLease) reportStage(ctx context.Context, id string) error {
	lease, err := l.read(ctx)
	if err != nil {
		return err
	}
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.SystemNamespace, Name: l.name()}}
		lease.OwnerReferences = l.owners()
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.StageChangedAnnotation, id)
		return l.wrapped("create", l.Writer.Create(ctx, lease))
	}
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.StageChangedAnnotation, id)
	return l.update(ctx, lease)
}
