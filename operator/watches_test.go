package operator

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/operator/runs"
)

func TestOnlyPodChangesThatStatusShowsAreFollowed(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*corev1.Pod)
		matters bool
	}{
		{"nothing", func(*corev1.Pod) {}, false},
		{"foreign annotation", func(p *corev1.Pod) { p.Annotations["other"] = "x" }, false},
		{"foreign condition", func(p *corev1.Pod) { p.Status.Conditions[1].Status = corev1.ConditionTrue }, false},
		{"resource version", func(p *corev1.Pod) { p.ResourceVersion = "2" }, false},
		{"another incarnation", func(p *corev1.Pod) { p.UID = "2" }, true},
		{"deletion", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, true},
		{"label", func(p *corev1.Pod) { p.Labels["app"] = "x" }, true},
		{"hash", func(p *corev1.Pod) { p.Annotations[v1alpha1.HashAnnotation] = "{}" }, true},
		{"injected list", func(p *corev1.Pod) { p.Annotations[v1alpha1.InjectedListAnnotation] = "b" }, true},
		{"phase", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		{"readiness", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		{"container", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ImageID = "x" }, true},
		{"begin of a resize", func(p *corev1.Pod) { p.Annotations[v1alpha1.ResizeAnnotation] = `{"a":"x"}` }, true},
		{"deferred resize", func(p *corev1.Pod) {
			p.Status.Conditions[1] = corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue}
		}, true},
		{"end of a resize", func(p *corev1.Pod) { p.Status.ObservedGeneration = 5 }, true},
		{"newer generation", func(p *corev1.Pod) { p.Generation = 6 }, false},
		{"kubelet that cannot resize", func(p *corev1.Pod) { p.Status.ObservedGeneration = 0 }, true},
		{"hash without image", func(p *corev1.Pod) { p.Annotations[v1alpha1.HashWithoutImageAnnotation] = "{}" }, true},
		{"upgrade", func(p *corev1.Pod) { p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = "{}" }, true},
		{"active twin", func(p *corev1.Pod) { p.Annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation] = "{}" }, true},
		{"condition of an upgrade", func(p *corev1.Pod) { p.Status.Conditions[1].Type = v1alpha1.UpgradableCondition }, true},
		{"resize in progress", func(p *corev1.Pod) { p.Status.Conditions[1].Type = corev1.PodResizeInProgress }, true},
		{"QoS class", func(p *corev1.Pod) { p.Status.QOSClass = corev1.PodQOSGuaranteed }, true},
		{"native sidecar", func(p *corev1.Pod) { p.Status.InitContainerStatuses[0].RestartCount = 1 }, true},
	} {
		before := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "1", ResourceVersion: "1", Generation: 5, Labels: map[string]string{"app": "web"},
				Annotations: map[string]string{v1alpha1.InjectedListAnnotation: "a"}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, ObservedGeneration: 4,
				Conditions: []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: "Other", Status: corev1.ConditionFalse},
				},
				ContainerStatuses:     []corev1.ContainerStatus{{Name: "c"}},
				InitContainerStatuses: []corev1.ContainerStatus{{Name: "i"}},
			},
		}
		after := before.DeepCopy()
		c.change(after)
		assert.Equal(t, c.matters, affectsStatus(before, after), c.name)
	}
}

func TestOwnStatusWritesAreNotUrgent(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*v1alpha1.SidecarSet)
		alone  bool
	}{
		{"status", func(s *v1alpha1.SidecarSet) { s.Status.MatchedPods = 1; s.ResourceVersion = "2" }, true},
		{"spec", func(s *v1alpha1.SidecarSet) { s.Generation++ }, false},
		{"label", func(s *v1alpha1.SidecarSet) { s.Labels = map[string]string{"a": "b"} }, false},
		{"annotation", func(s *v1alpha1.SidecarSet) { s.Annotations = map[string]string{"a": "b"} }, false},
		{"another incarnation", func(s *v1alpha1.SidecarSet) { s.UID = "2" }, false},
	} {
		before := setAt(0)
		after := before.DeepCopy()
		c.change(after)
		assert.Equal(t, c.alone, onlyStatus(before, after), c.name)
	}
}

func TestWrittenReportsCauseNoReconcile(t *testing.T) {
	complete := observation{plan: plan(protocol.PhaseComplete, protocol.Counts{Matched: 2, Updated: 2, Ready: 2, UpdatedReady: 2})}
	before := described("logs", generation, complete)
	sets := &setLister{reported: &reports{}}
	enqueued := func(after *v1alpha1.SidecarSet) []time.Duration {
		q := newWaits()
		defer q.ShutDown()
		setEvents(sets, nil).Update(t.Context(), event.TypedUpdateEvent[*v1alpha1.SidecarSet]{ObjectOld: before, ObjectNew: after}, q)
		return q.all
	}
	late := []time.Duration{minReconcileInterval}
	report := before.DeepCopy()
	report.ResourceVersion = "2"
	report.Status.ReadyPods, report.Status.UpdatedReadyPods = 1, 1
	report.Status.Conditions[0].Message = "one pod is not ready"
	assert.Equal(t, late, enqueued(report), "another client has written the status")
	sets.reported.record(before, report)
	assert.Empty(t, enqueued(report))
	other := report.DeepCopy()
	other.Status.ReadyPods = 0
	assert.Equal(t, late, enqueued(other), "another client has changed the written status")
	before = report
	assert.Equal(t, late, enqueued(report), "a resync")
	before = described("logs", generation, complete)
	sets.reported.forget("logs")
	assert.Equal(t, late, enqueued(report))

	for name, change := range map[string]func(*v1alpha1.SidecarSet){
		"pause":    func(s *v1alpha1.SidecarSet) { s.Status.Rollout.Pause = &v1alpha1.RolloutPause{By: "ann"} },
		"revision": func(s *v1alpha1.SidecarSet) { s.Status.LatestRevision = "logs-2" },
		"progressing": func(s *v1alpha1.SidecarSet) {
			s.Status.Conditions = described("logs", generation, observation{plan: plan(protocol.PhaseWaiting, complete.plan.Counts)}).Status.Conditions
		},
	} {
		sets.reported.record(before, report)
		after := before.DeepCopy()
		change(after)
		sets.reported.record(before, after)
		assert.Equal(t, late, enqueued(after), name)
	}
}

// described returns a SidecarSet with the status that a reconcile writes for seen.
func described(name string, started int64, seen observation) *v1alpha1.SidecarSet {
	set := setAt(started)
	set.Name = name
	if started > 0 {
		set.Status.Rollout.Pause = seen.pause
	}
	describe(&pass{set: set, observation: seen, now: time.Unix(1000, 0)})
	return set
}

func TestTemporalThatComesAndGoesConcernsSetsWithARolloutAlone(t *testing.T) {
	away := errors.New("no answer")
	left, none := protocol.Counts{Matched: 2, Remaining: 1}, protocol.Counts{Matched: 2, Updated: 2}
	objects := []client.Object{}
	idle := map[string]observation{
		"complete":       {plan: plan(protocol.PhaseComplete, none)},
		"complete-away":  {plan: plan(protocol.PhaseComplete, none), temporal: away},
		"partition":      {plan: plan(protocol.PhasePartitionReached, none)},
		"not-update":     {plan: plan(protocol.PhaseNotUpdate, none)},
		"not-upgradable": {plan: plan(protocol.PhaseComplete, protocol.Counts{Matched: 2, NotUpgradable: 1})},
		"invalid":        {invalid: errors.New("selector")},
	}
	open := map[string]observation{
		"progressing":  {plan: plan(protocol.PhaseProgressing, left)},
		"waiting":      {plan: plan(protocol.PhaseWaiting, left)},
		"waiting-away": {plan: plan(protocol.PhaseWaiting, left), temporal: away},
		"converging":   {plan: plan(protocol.PhaseWaiting, none), temporal: away},
		"paused":       {plan: plan(protocol.PhasePaused, left)},
		"paused-run":   {plan: plan(protocol.PhaseProgressing, left), pause: &v1alpha1.RolloutPause{By: "ann"}},
		"paused-idle":  {plan: plan(protocol.PhaseComplete, none), pause: &v1alpha1.RolloutPause{}},
		"failing":      {plan: plan(protocol.PhaseProgressing, left), fault: runs.Fault{Reason: v1alpha1.ReasonRolloutFailing, Message: "fails"}},
	}
	want := []string{"new", "older"}
	for name, seen := range idle {
		objects = append(objects, described(name, generation, seen))
	}
	for name, seen := range open {
		objects, want = append(objects, described(name, generation, seen)), append(want, name)
	}
	objects = append(objects, described("new", 0, idle["complete"]), described("older", generation-1, idle["not-update"]))
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	sets := &setLister{
		Reader:  fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
		limiter: newEnqueueLimiter(clocktesting.NewFakePassiveClock(time.Unix(1000, 0))),
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	eventsOfAll(sets, needsTemporal).Generic(t.Context(), event.GenericEvent{}, q)
	slices.Sort(want)
	assert.Equal(t, want, drain(q))
}

// drain removes all requests from q, and returns the sorted names in the requests.
func drain(q queue) []string {
	var enqueued []string
	for q.Len() > 0 {
		request, _ := q.Get()
		enqueued = append(enqueued, request.Name)
	}
	slices.Sort(enqueued)
	return enqueued
}
