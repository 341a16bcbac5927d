package fleet

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/temporal"
)

// read reads a SidecarSet and the status of the newest run of the SidecarSet.
func (m *Member) read(ctx context.Context, name string) (*localRun, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	local := &localRun{}
	set := &v1alpha1.SidecarSet{}
	err := m.Live.Get(ctx, types.NamespacedName{Name: name}, set)
	if apierrors.IsNotFound(err) || err == nil && set.DeletionTimestamp != nil {
		return local, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read SidecarSet %s: %w", name, err)
	}
	if local.set, err = revision.Completed(set); err != nil {
		return nil, err
	}
	answer, err := m.Local.QueryWorkflow(ctx, local.id(), "", protocol.StatusQuery)
	if temporal.IsNotFound(err) {
		local.missing = true
		return local, nil
	}
	if err == nil {
		err = answer.Get(&local.status)
	}
	if err != nil {
		return nil, fmt.Errorf("read the run of SidecarSet %s: %w", name, err)
	}
	return local, nil
}

// localRun is a SidecarSet and the status of the newest run. If the SidecarSet is missing or being deleted,
// set is nil.
type localRun struct {
	set    *v1alpha1.SidecarSet
	status protocol.RolloutStatus
	// missing is set if Temporal has no run of the SidecarSet.
	missing bool
	// beat contains the details of the heartbeats of the activity.
	beat heartbeat
}

func (l *localRun) id() string { return protocol.WorkflowID(l.set.Name, l.set.UID) }

func (l *localRun) hash() string {
	if l.set == nil {
		return ""
	}
	return l.set.Annotations[v1alpha1.HashAnnotation]
}

// current reports whether the run has the newest generation of the SidecarSet.
func (l *localRun) current() bool { return l.status.Generation == l.set.Generation }

func (l *localRun) ended() bool {
	switch l.status.Phase {
	case protocol.PhaseComplete, protocol.PhasePartitionReached, protocol.PhaseNotUpdate:
		return true
	}
	return false
}

// forgotten reports whether the rollout has ended, and Temporal has deleted the run. Temporal deletes a run after
// the retention time of the namespace.
func (l *localRun) forgotten() bool {
	if l.set == nil || !l.missing {
		return false
	}
	switch l.set.ProgressingReason() {
	case v1alpha1.ReasonRolloutComplete, v1alpha1.ReasonPartitionReached, v1alpha1.ReasonNotUpgradablePods, v1alpha1.ReasonNotUpdate:
		return true
	}
	return false
}

// recorded reports whether status records the end of the rollout. Without matched pods, status does not
// record the end, so recorded returns true.
func (l *localRun) recorded() bool { return l.good() || l.set.Status.MatchedPods == 0 }

// good reports whether the rollout of the current content is the rollout that ended last.
func (l *localRun) good() bool { return l.set.Status.IsLastGood(l.hash()) }

func (l *localRun) quarantined() bool {
	s := l.status.Stage
	return s != nil && s.Quarantine != nil && s.Quarantine.Hash == l.hash()
}

// judged reports whether a failure of the run is about the current content, even if the fleet has given no
// permit. The first attempt of the fleet neither retries nor resumes such content. A pause of earlier content is
// not a failure of the current content.
func (l *localRun) judged() bool {
	permit, s := l.status.Permit, l.status.Stage
	if s != nil && s.Hash == l.hash() && (s.Failed != nil || s.EndedGate(protocol.GateFailure) != nil) {
		return true
	}
	return l.quarantined() || permit != nil && permit.Hash == l.hash() || fleet.Recorded(l.set) != nil
}

func (l *localRun) aborting() bool { return l.status.Stage != nil && l.status.Stage.Aborted != nil }

// inconclusive reports whether a RolloutPolicy paused the run only because a gate of the current content was
// inconclusive. Such a pause does not mean that the content has failed. After a failure, the stage records the
// failed pods.
func (l *localRun) inconclusive() bool {
	pause, s := l.status.Pause, l.status.Stage
	return pause != nil && pause.ByPolicy() && s != nil && s.Hash == l.hash() && s.Failed == nil && s.EndedGate(protocol.GateInconclusive) != nil
}

// failure returns the reason of a rollback of the run, of a pause by a RolloutPolicy after a failure, or of a
// pause by a rollback of the fleet that found no earlier revision.
func (l *localRun) failure() (reason string, failed bool) {
	switch pause := l.status.Pause; {
	case l.quarantined():
		return l.status.Stage.Quarantine.Reason, true
	case l.inconclusive():
		return "", false
	case pause != nil && (pause.ByPolicy() || pause.By == byFleet):
		return pause.Reason, true
	}
	return "", false
}

// attempt returns the highest attempt among the permits for this content in the run and in status.
func (l *localRun) attempt() (attempt int) {
	if permit := l.status.Permit; permit != nil && permit.Hash == l.hash() {
		attempt = permit.Attempt
	}
	if recorded := fleet.Recorded(l.set); recorded != nil {
		attempt = max(attempt, recorded.Attempt)
	}
	return attempt
}
