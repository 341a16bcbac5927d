package operator

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/cluster/process"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/kube"
)

const (
	// soon is the timeout for changes that happen without further action of the test.
	soon = 3 * time.Minute
	tick = 50 * time.Millisecond
)

// testEnv is the operator in a separate cluster.
type testEnv struct {
	client.Client
	cluster  *cluster.Cluster
	role     cluster.Role
	temporal sdk.Client
	// worker is a fake worker of Outrigger.
	worker    worker.Worker
	taskQueue string
}

// TestOperator tests the life cycle of several SidecarSets in one cluster, because the start of a cluster is
// slow.
func TestOperator(t *testing.T) {
	e := newTestEnv(t)
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"Spec6_FirstGenerationIsRegisteredAndStarted", e.testFirstGeneration},
		{"Spec6_RevisionsFollowTheContent", e.testRevisions},
		{"Spec6_CollisionsAreCounted", e.testCollision},
		{"Spec8_StatusFollowsThePods", e.testStatus},
		{"Spec3_NamespaceLabelsAreFollowed", e.testNamespaceLabels},
		{"Spec8_PauseAndResumeAreReported", e.testPause},
		{"Spec2_ASetThatNoWebhookSawIsRolledOutAndDegraded", e.testOutdatedHashes},
		{"Spec7_5_AnOutdatedStatusIsNotWritten", e.testOutdatedStatus},
		{"Spec8_SetsWhosePodsAreUnknownAreCalledInvalid", e.testInvalid},
		{"EndedRunsAreFollowedByOthersWhilePodsWait", e.testRunAgain},
		{"Spec1_RestartWritesNothing", e.testRestart},
		{"Spec8_TemporalMayGoAndComeBack", e.testTemporalAway},
		{"Spec8_RejectionsOfTemporalAreReported", e.testRejection},
		{"SearchAttributesAreRegistered", e.testSearchAttributes},
		{"Spec6_DeletedSetsLeaveNothing", e.testDeletion},
		{"Spec11_7_AnInstallationWithoutFreezesWorks", e.testWithoutDefinition},
	} {
		// Later parts depend on the objects of earlier parts, so the first failure ends the test.
		if !t.Run(part.name, part.test) {
			return
		}
	}
}

func newTestEnv(t *testing.T) *testEnv {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{Dir: t.TempDir(), Bin: binWithTestedOperator(t), Nodes: 1})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	t.Cleanup(func() {
		if operator, err := c.Process(cluster.Operator); err == nil && t.Failed() {
			t.Logf("log of the operator:\n%s", process.Tail(operator.Log))
		}
	})
	config, err := c.RESTConfig()
	require.NoError(t, err)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	require.NoError(t, eventsv1.AddToScheme(scheme))
	e := &testEnv{cluster: c}
	e.Client, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	e.temporal, err = sdk.NewLazyClient(sdk.Options{HostPort: c.TemporalAddress})
	require.NoError(t, err)
	t.Cleanup(e.temporal.Close)
	var system corev1.Namespace
	require.NoError(t, e.Get(ctx, client.ObjectKey{Name: "kube-system"}, &system))
	e.taskQueue = string(system.UID)
	e.work(t)
	t.Cleanup(func() { e.worker.Stop() })
	e.role, err = c.StartRole(ctx, cluster.Operator)
	require.NoError(t, err)
	return e
}

// binWithTestedOperator returns a copy of bin/ in which the test binary replaces outrigger.
func binWithTestedOperator(t *testing.T) string {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Join(root, "bin"))
	require.NoError(t, err)
	bin := t.TempDir()
	for _, entry := range entries {
		if entry.Name() != "outrigger" {
			require.NoError(t, os.Symlink(filepath.Join(root, "bin", entry.Name()), filepath.Join(bin, entry.Name())))
		}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "outrigger")))
	return bin
}

// newSet returns a SidecarSet with the defaults and annotations that the webhook would write.
func newSet(t *testing.T, name, image string) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.SidecarSetSpec{
			Selector:   &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Containers: []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "proxy", Image: image}}},
			UpdateStrategy: v1alpha1.SidecarSetUpdateStrategy{
				Type: v1alpha1.RollingUpdateSidecarSetStrategyType,
			},
		},
	}
	admit(t, set)
	return set
}

func admit(t *testing.T, set *v1alpha1.SidecarSet) {
	hash, err := revision.Hash(&set.Spec)
	require.NoError(t, err)
	blank, err := revision.HashWithoutImage(&set.Spec)
	require.NoError(t, err)
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: hash, v1alpha1.HashWithoutImageAnnotation: blank}
}

// change applies how to a SidecarSet, and writes the result with the annotations that the webhook would
// write.
func (e *testEnv) change(t *testing.T, name string, how func(*v1alpha1.SidecarSet)) *v1alpha1.SidecarSet {
	t.Helper()
	var set v1alpha1.SidecarSet
	require.NoError(t, e.Get(t.Context(), client.ObjectKey{Name: name}, &set))
	before := set.DeepCopy()
	how(&set)
	admit(t, &set)
	require.NoError(t, e.Patch(t.Context(), &set, client.MergeFrom(before)))
	return &set
}

func setImage(image string) func(*v1alpha1.SidecarSet) {
	return func(set *v1alpha1.SidecarSet) { set.Spec.Containers[0].Image = image }
}

// addPods creates pods that have the current content of set.
func (e *testEnv) addPods(t *testing.T, set *v1alpha1.SidecarSet, namespace string, names ...string) {
	t.Helper()
	entry := func(key string) string {
		written, err := record.Format(record.Entries{set.Name: {
			Hash: set.Annotations[key], SidecarSetName: set.Name, SidecarList: []string{"proxy"},
		}})
		require.NoError(t, err)
		return written
	}
	for _, name := range names {
		require.NoError(t, e.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, Labels: map[string]string{"app": set.Name},
				Annotations: map[string]string{
					v1alpha1.InjectedListAnnotation:     set.Name,
					v1alpha1.HashAnnotation:             entry(v1alpha1.HashAnnotation),
					v1alpha1.HashWithoutImageAnnotation: entry(v1alpha1.HashWithoutImageAnnotation),
				},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "app", Image: "app:v1"}, {Name: "proxy", Image: set.Spec.Containers[0].Image},
			}},
		}))
	}
}

// await waits until wanted accepts the SidecarSet, and returns the SidecarSet.
func (e *testEnv) await(t *testing.T, name string, wanted func(*assert.CollectT, *v1alpha1.SidecarSet)) *v1alpha1.SidecarSet {
	t.Helper()
	var set v1alpha1.SidecarSet
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		set = v1alpha1.SidecarSet{}
		require.NoError(c, e.Get(t.Context(), client.ObjectKey{Name: name}, &set))
		wanted(c, &set)
	}, soon, tick)
	return &set
}

func isStarted(c *assert.CollectT, set *v1alpha1.SidecarSet) {
	assert.Equal(c, set.Generation, set.Status.ObservedGeneration)
	if assert.NotNil(c, set.Status.Rollout) {
		assert.Equal(c, set.Generation, set.Status.Rollout.Generation)
	}
}

func hasReason(kind, reason string) func(*assert.CollectT, *v1alpha1.SidecarSet) {
	return func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, reason, reasonAndMessage(set, kind).reason)
	}
}

// revisions returns the sorted revisions of a SidecarSet.
func (e *testEnv) revisions(t require.TestingT, set string) []*appsv1.ControllerRevision {
	var list appsv1.ControllerRevisionList
	require.NoError(t, e.List(context.Background(), &list, client.InNamespace(cluster.SystemNamespace),
		client.MatchingLabels{v1alpha1.SidecarSetNameLabel: set}))
	var all []*appsv1.ControllerRevision
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	revision.Sort(all)
	return all
}

// signals returns the generations that were signalled to a run, the oldest first.
func (e *testEnv) signals(t *testing.T, workflowID string) []int64 {
	var generations []int64
	history := e.temporal.GetWorkflowHistory(t.Context(), workflowID, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		if signal := event.GetWorkflowExecutionSignaledEventAttributes(); signal != nil && signal.SignalName == protocol.GenerationSignal {
			var input protocol.GenerationInput
			require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(signal.Input, &input))
			generations = append(generations, input.Generation)
		}
	}
	return generations
}

func (e *testEnv) awaitEvent(t *testing.T, set, reason, note string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var events eventsv1.EventList
		require.NoError(c, e.List(t.Context(), &events))
		var seen []string
		for _, event := range events.Items {
			if event.Regarding.Kind == "SidecarSet" && event.Regarding.Name == set {
				seen = append(seen, event.Reason+": "+event.Note)
			}
		}
		assert.Contains(c, strings.Join(seen, "\n"), reason+": "+note)
	}, soon, tick)
}

// metric returns the value of a series of the operator. series is the text of the series in /metrics.
func (e *testEnv) metric(t require.TestingT, series string) float64 {
	for line := range strings.Lines(e.metrics(t)) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			read, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			require.NoError(t, err)
			return read
		}
	}
	require.Fail(t, "no such metric", series)
	return 0
}

func (e *testEnv) metrics(t require.TestingT) string {
	response, err := http.Get(e.role.Metrics)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(body)
}

func (e *testEnv) testFirstGeneration(t *testing.T) {
	require.NoError(t, e.Create(t.Context(), newSet(t, "first", "proxy:v1")))
	set := e.await(t, "first", isStarted)

	name, err := revision.Name(set)
	require.NoError(t, err)
	assert.Equal(t, name, set.Status.LatestRevision)
	all := e.revisions(t, "first")
	require.Len(t, all, 1)
	want, err := revision.New(set, cluster.SystemNamespace, 1)
	require.NoError(t, err)
	got := all[0]
	assert.Equal(t, want.Data.Raw, got.Data.Raw, "the server keeps the bytes")
	assert.Equal(t, []any{want.Name, want.Labels, want.Annotations, want.OwnerReferences, int64(1)},
		[]any{got.Name, got.Labels, got.Annotations, got.OwnerReferences, got.Revision})

	id := protocol.WorkflowID("first", set.UID)
	assert.Equal(t, &v1alpha1.RolloutStatus{
		Generation: 1, WorkflowID: id,
		URL: e.cluster.TemporalUI + "/namespaces/default/workflows/sidecarset%2Ffirst%2F" + string(set.UID),
	}, set.Status.Rollout)
	run, err := e.temporal.DescribeWorkflow(t.Context(), id, "")
	require.NoError(t, err)
	assert.Equal(t, enums.WORKFLOW_EXECUTION_STATUS_RUNNING, run.Status)
	assert.Equal(t, protocol.RolloutWorkflow, run.WorkflowType.Name)
	var system corev1.Namespace
	require.NoError(t, e.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, &system))
	assert.Equal(t, string(system.UID), run.TaskQueueName)
	carried := map[string]any{}
	for key, value := range run.TypedSearchAttributes.GetUntypedValues() {
		carried[key.GetName()] = value
	}
	// After a worker has started the workflow task, Temporal adds the search attribute BuildIds.
	delete(carried, "BuildIds")
	assert.Equal(t, map[string]any{"SidecarSet": "first", "SidecarSetGeneration": int64(1), "RolloutPhase": "Progressing"}, carried)
	assert.Equal(t, []int64{1}, e.signals(t, id))
	e.awaitEvent(t, "first", "RolloutStarted", "Rolling out generation 1 (")
}

func (e *testEnv) testNamespaceLabels(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	require.NoError(t, e.Create(t.Context(), namespace))
	set := newSet(t, "by-namespace", "proxy:v1")
	set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"mesh": "on"}}
	require.NoError(t, e.Create(t.Context(), set))
	e.addPods(t, set, "shop", "p")
	e.await(t, "by-namespace", isStarted)

	before := namespace.DeepCopy()
	namespace.Labels = map[string]string{"mesh": "on"}
	require.NoError(t, e.Patch(t.Context(), namespace, client.MergeFrom(before)))
	e.await(t, "by-namespace", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		assert.Equal(c, int32(1), set.Status.MatchedPods)
	})
}

func (e *testEnv) testPause(t *testing.T) {
	set := newSet(t, "pausing", "proxy:v1")
	require.NoError(t, e.Create(t.Context(), set))
	e.addPods(t, set, "default", "pausing-1")
	e.change(t, "pausing", func(set *v1alpha1.SidecarSet) {
		setImage("proxy:v2")(set)
		set.Spec.UpdateStrategy.Paused = true
	})
	e.await(t, "pausing", hasReason(v1alpha1.ConditionProgressing, "Paused"))
	e.awaitEvent(t, "pausing", "RolloutPaused", "paused (updateStrategy.paused)")
	e.change(t, "pausing", func(set *v1alpha1.SidecarSet) { set.Spec.UpdateStrategy.Paused = false })
	e.await(t, "pausing", hasReason(v1alpha1.ConditionProgressing, "RolloutInProgress"))
	e.awaitEvent(t, "pausing", "RolloutResumed", "0 of 1 pods updated")
}

// If a SidecarSet is edited while the webhook is not called, its hash annotations are outdated.
func (e *testEnv) testOutdatedHashes(t *testing.T) {
	set := newSet(t, "unadmitted", "proxy:v1")
	require.NoError(t, revision.Complete(set, nil))
	require.NoError(t, e.Create(t.Context(), set))
	e.addPods(t, set, "default", "unadmitted-1", "unadmitted-2")
	e.await(t, "unadmitted", func(c *assert.CollectT, set *v1alpha1.SidecarSet) { assert.EqualValues(c, 2, set.Status.UpdatedPods) })

	before := set.DeepCopy()
	set.Spec.Containers = newSet(t, "unadmitted", "proxy:v2").Spec.Containers // without defaults
	require.NoError(t, e.Patch(t.Context(), set, client.MergeFrom(before)))
	got := e.await(t, "unadmitted", func(c *assert.CollectT, set *v1alpha1.SidecarSet) {
		hasReason(v1alpha1.ConditionDegraded, "OutdatedHashes")(c, set)
		isStarted(c, set)
		assert.Zero(c, set.Status.UpdatedPods)
	})
	assert.Contains(t, meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionDegraded).Message, "kubectl patch sidecarset unadmitted --type=merge -p '{}'")
	assert.Equal(t, before.Annotations, got.Annotations, "the operator writes no set")
	completed, err := revision.Completed(got)
	require.NoError(t, err)
	revisions := e.revisions(t, "unadmitted")
	require.Len(t, revisions, 2)
	assert.Equal(t, completed.Annotations[v1alpha1.HashAnnotation], revisions[1].Annotations[v1alpha1.HashAnnotation])
	assert.Equal(t, revisions[1].Name, got.Status.LatestRevision)

	e.change(t, "unadmitted", func(set *v1alpha1.SidecarSet) { set.Spec = completed.Spec })
	e.await(t, "unadmitted", hasReason(v1alpha1.ConditionDegraded, "AsExpected"))
	assert.Len(t, e.revisions(t, "unadmitted"), 2, "it is the same content")
}

// recordGoodRevision relies on the API server, which rejects a write of status after a change of the
// SidecarSet.
func (e *testEnv) testOutdatedStatus(t *testing.T) {
	var outdated v1alpha1.SidecarSet
	require.NoError(t, e.Get(t.Context(), client.ObjectKey{Name: "unadmitted"}, &outdated))
	e.change(t, "unadmitted", func(set *v1alpha1.SidecarSet) { metav1.SetMetaDataLabel(&set.ObjectMeta, "changed", "yes") })
	writer := &statusWriter{client: e.Client, writes: prometheus.NewCounter(prometheus.CounterOpts{}), reported: &reports{}}
	before := outdated.DeepCopy()
	outdated.Status.CollisionCount = new(int32(7))
	require.True(t, apierrors.IsConflict(writer.write(t.Context(), before, &outdated)))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		var current, stored v1alpha1.SidecarSet
		require.NoError(c, e.Get(t.Context(), client.ObjectKey{Name: "unadmitted"}, &current))
		before := current.DeepCopy()
		current.Status.CollisionCount = new(int32(7))
		require.NoError(c, writer.write(t.Context(), before, &current))
		assert.NotEqual(c, before.ResourceVersion, current.ResourceVersion)
		require.NoError(c, e.Get(t.Context(), client.ObjectKey{Name: "unadmitted"}, &stored))
		assert.EqualValues(c, 7, *stored.Status.CollisionCount)
		assert.Equal(c, before.Status.MatchedPods, stored.Status.MatchedPods)
	}, soon, tick)
}

func (e *testEnv) testInvalid(t *testing.T) {
	unreadable := newSet(t, "unreadable", "proxy:v1")
	unreadable.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Is", Values: []string{"a"}}}
	require.NoError(t, e.Create(t.Context(), unreadable))
	got := e.await(t, "unreadable", hasReason(v1alpha1.ConditionDegraded, "Invalid"))
	assert.Equal(t, got.Generation, got.Status.ObservedGeneration)
	assert.Nil(t, got.Status.Rollout)
	assert.Contains(t, meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionDegraded).Message, "new pods that the SidecarSet could match are rejected")
	e.change(t, "unreadable", func(set *v1alpha1.SidecarSet) { set.Spec.Selector.MatchExpressions = nil })
	e.await(t, "unreadable", isStarted)
}
