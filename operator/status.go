package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fleet"
	"github.com/outrigger/outrigger/internal/jsonpatch"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
	"github.com/outrigger/outrigger/operator/runs"
)

// actionRollout is the action of every event.
const actionRollout = "Rollout"

// statusStep writes status, and records events about changes of status.
type statusStep struct {
	*statusWriter
	temporal *runs.Client
	recorder events.EventRecorder
	metrics  *rolloutMetrics
	// evicts reports whether the outdated pods of a SidecarSet are evicted. known is false until the evictions
	// of the SidecarSet have been read.
	evicts func(set string) (evicts, known bool)
}

func (s *statusStep) reconcile(ctx context.Context, p *pass) error {
	recordFormerRevision(p)
	recordGoodRevision(p)
	if p.out.started {
		id := protocol.WorkflowID(p.set.Name, p.set.UID)
		started := &v1alpha1.RolloutStatus{Generation: p.set.Generation, WorkflowID: id, URL: s.temporal.URL(id), Pause: p.pause, Quarantine: stage.QuarantineOf(p.set)}
		if started.Quarantine != nil {
			started.Policy, started.Stage = p.set.Status.Rollout.Policy, p.set.Status.Rollout.Stage
		}
		if permit := fleet.Recorded(p.set); permit != nil {
			started.Permit = permit.String()
		}
		p.set.Status.Rollout = started
	}
	if p.out.pauseKnown {
		p.pause = p.out.pause
		p.set.Status.Rollout.Pause = p.out.pause
	}
	recordStage(p)
	p.set.Status.GoodRevisions = rollout.WithoutQuarantined(p.set.Status.GoodRevisions, stage.QuarantineOf(p.set))
	recordPermit(p)
	p.fault = p.out.fault
	evicts, known := s.evicts(p.set.Name)
	p.evicts = evicts || !known && !meta.IsStatusConditionTrue(p.before.Status.Conditions, v1alpha1.ConditionStalled)
	s.metrics.observe(p.set, &p.observation)
	describe(p)
	if err := s.write(ctx, p.before, p.set); err != nil {
		if p.state != nil {
			p.state.readRunAgain(p.now)
		}
		// The SidecarSet may have been deleted during the pass.
		return client.IgnoreNotFound(err)
	}
	for _, event := range append(eventsFor(p.before, p.set, p.out.resumed, p.plan.Counts.NotUpgradable), p.out.events...) {
		s.recorder.Eventf(p.set, nil, event.kind, event.reason, actionRollout, "%s", boundedNote(event.note))
	}
	return nil
}

func (s *statusStep) forget(name string) {
	s.metrics.forget(name)
	s.reported.forget(name)
}

// recordStage copies the stage of the run to status, so that the stage is kept if the run is lost
// (SPEC 11.4.1). A run of another generation does not change status.
func recordStage(p *pass) {
	if p.out.stage != nil && p.out.stage.Generation == p.set.Generation && rolloutStarted(p.set) {
		stage.ToStatus(p.set, p.out.stage)
	}
}

// coversNoUpgrade is a resourceVersion from before the first upgrade of any pod.
const coversNoUpgrade = "1"

// recordFormerRevision records the end of the rollout of the previous generation, if status showed this end,
// but the SidecarSet changed before the run ended. Without this record, a rollback of the new generation would
// skip the previous revision. The run may have upgraded a pod after status showed the end, so the record
// contains coversNoUpgrade (SPEC 7.5.6).
func recordFormerRevision(p *pass) {
	was := &p.before.Status
	if p.former == nil || was.ObservedGeneration == p.set.Generation || was.UpdatedReadyPods == 0 {
		return
	}
	progressing := reasonAndMessage(p.before, v1alpha1.ConditionProgressing).reason
	switch progressing {
	case v1alpha1.ReasonRolloutComplete, v1alpha1.ReasonPartitionReached, v1alpha1.ReasonNotUpgradablePods:
	default:
		return
	}
	good := v1alpha1.GoodRevision{Revision: p.former.Name, Hash: p.former.Annotations[v1alpha1.HashAnnotation], ResourceVersion: coversNoUpgrade}
	if last := was.LastGoodRevision(); good.Hash == "" || good.Hash == p.set.Annotations[v1alpha1.HashAnnotation] || last != nil && last.Hash == good.Hash && last.Revision == good.Revision {
		return
	}
	for _, known := range was.GoodRevisions {
		if known.Hash == good.Hash && known.ResourceVersion != "" {
			good.ResourceVersion = known.ResourceVersion
		}
	}
	p.set.Status.GoodRevisions = rollout.WithGood(was.GoodRevisions, good)
}

// recordGoodRevision records the end of a rollout in status. Before the first rollout, recordGoodRevision
// records the content of pods that are already updated. The write of status contains the resourceVersion of
// the SidecarSet. The API server therefore rejects the write if the SidecarSet has changed since the start
// of the pass.
func recordGoodRevision(p *pass) {
	if p.invalid != nil {
		return
	}
	status := &p.set.Status
	good := v1alpha1.GoodRevision{Revision: status.LatestRevision, Hash: p.set.Annotations[v1alpha1.HashAnnotation]}
	switch {
	case p.endToRecord && p.out.ended:
		good.ResourceVersion = p.set.ResourceVersion
	case status.Rollout != nil || len(status.GoodRevisions) > 0 || p.plan.Counts.Updated == 0:
		return
	}
	status.GoodRevisions = rollout.WithGood(status.GoodRevisions, good)
}

// describe writes the observation into status. The pods of an invalid SidecarSet are not known, so the counts
// do not change. Only the counts of updated pods are set to zero, because no pod is updated to an invalid
// generation (SPEC 1.17.1).
func describe(p *pass) {
	status := &p.set.Status
	newGeneration := status.ObservedGeneration != p.set.Generation
	status.ObservedGeneration = p.set.Generation
	if p.invalid != nil && newGeneration {
		status.UpdatedPods, status.UpdatedReadyPods = 0, 0
	}
	if p.invalid == nil {
		counts := p.plan.Counts
		status.MatchedPods = int32(counts.Matched)
		status.UpdatedPods = int32(counts.Updated)
		status.ReadyPods = int32(counts.Ready)
		status.UpdatedReadyPods = int32(counts.UpdatedReady)
		if p.rollsBack() {
			status.UpdatedPods, status.UpdatedReadyPods = int32(p.plan.Quarantined), int32(p.plan.QuarantinedReady)
		}
	}
	setConditions(p)
}

// statusWriter writes the status of SidecarSets.
type statusWriter struct {
	client   client.Client
	writes   prometheus.Counter
	reported *reports
}

// newStatusWriter returns a writer whose client has a fixed REST mapping of SidecarSets, so that a write needs
// no API discovery.
func newStatusWriter(mgr manager.Manager, metrics *metrics, reported *reports) (*statusWriter, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind(revision.OwnerKind), meta.RESTScopeRoot)
	made, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("set up the client for status: %w", err)
	}
	return &statusWriter{client: made, writes: metrics.statusWrites, reported: reported}, nil
}

// write writes the status of set if it differs from the status of before. Afterwards, set contains the
// resourceVersion of the write. The request contains only the status, and the response only the metadata,
// because the content of a SidecarSet is large.
func (w *statusWriter) write(ctx context.Context, before, set *v1alpha1.SidecarSet) error {
	if equality.Semantic.DeepEqual(&before.Status, &set.Status) {
		return nil
	}
	patch, err := json.Marshal([]jsonpatch.Operation{
		jsonpatch.Add("/metadata/resourceVersion", set.ResourceVersion), jsonpatch.Add("/status", &set.Status),
	})
	if err != nil {
		return fmt.Errorf("encode the status of SidecarSet %s: %w", set.Name, err)
	}
	w.reported.record(before, set)
	written := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: set.Name}}
	written.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(revision.OwnerKind))
	err = w.client.Status().Patch(ctx, written, client.RawPatch(types.JSONPatchType, patch))
	if apierrors.IsForbidden(err) {
		// The ClusterRole of an older release permits only the verb update.
		full := set.DeepCopy()
		err = w.client.Status().Update(ctx, full)
		written.ResourceVersion = full.ResourceVersion
	}
	if err != nil {
		return fmt.Errorf("write the status of SidecarSet %s: %w", set.Name, err)
	}
	set.ResourceVersion = written.ResourceVersion
	w.writes.Inc()
	return nil
}

// reports contains, for each SidecarSet, the status of the last write if the write was a report. A report
// changes only counts and conditions, and not the reason of Progressing. No decision of the next reconcile
// depends on a change of these fields, so the event of a report requires no reconcile.
type reports struct{ byName sync.Map }

// record is called before the write, because the event of the write may arrive before the response.
func (r *reports) record(before, after *v1alpha1.SidecarSet) {
	was := before.Status
	was.MatchedPods, was.UpdatedPods, was.ReadyPods, was.UpdatedReadyPods = after.Status.MatchedPods, after.Status.UpdatedPods, after.Status.ReadyPods, after.Status.UpdatedReadyPods
	was.Conditions = after.Status.Conditions
	reason := func(set *v1alpha1.SidecarSet) string {
		return reasonAndMessage(set, v1alpha1.ConditionProgressing).reason
	}
	if equality.Semantic.DeepEqual(&was, &after.Status) && reason(before) == reason(after) {
		r.byName.Store(after.Name, after.Status.DeepCopy())
		return
	}
	r.forget(after.Name)
}

// is reports whether the status of set is the recorded status.
func (r *reports) is(set *v1alpha1.SidecarSet) bool {
	status, ok := r.byName.Load(set.Name)
	return ok && equality.Semantic.DeepEqual(status, &set.Status)
}

func (r *reports) forget(name string) { r.byName.Delete(name) }
