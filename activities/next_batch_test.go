package activities

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/rollout"
)

// notReady makes a pod unready. An unready pod needs no slot, so a plan selects the pod for any
// maxUnavailable.
func notReady(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

// notUpgradable makes a pod differ from the SidecarSet in more than images.
func notUpgradable(pod *corev1.Pod) {
	pod.Annotations[v1alpha1.HashWithoutImageAnnotation] = `{"logs":{"hash":"another"}}`
}

func TestNextBatch(t *testing.T) {
	generation := func(generation int64) func(*v1alpha1.SidecarSet) {
		return func(s *v1alpha1.SidecarSet) { s.Generation = generation }
	}
	same := func(*v1alpha1.SidecarSet) {}
	for name, c := range map[string]struct {
		set   func(*v1alpha1.SidecarSet)
		pods  []*corev1.Pod
		input func(*protocol.NextBatchInput)
		want  protocol.Phase
		names []string
		again time.Duration
	}{
		"pods to upgrade":                             {same, []*corev1.Pod{webPod("a"), webPod("b"), webPod("c")}, nil, protocol.PhaseProgressing, []string{"a", "b"}, 0},
		"a generation that was left":                  {generation(3), []*corev1.Pod{webPod("a")}, nil, protocol.PhaseSuperseded, []string{}, 0},
		"a generation that the cluster does not have": {generation(1), []*corev1.Pod{webPod("a")}, nil, protocol.PhaseSuperseded, []string{}, 0},
		"a deleted SidecarSet":                        {func(s *v1alpha1.SidecarSet) { s.UID = "another" }, nil, nil, protocol.PhaseDeleted, []string{}, 0},
		"nothing left":                                {same, []*corev1.Pod{webPod("a", upgraded)}, nil, protocol.PhaseComplete, []string{}, 0},
		"no pods at all":                              {same, nil, nil, protocol.PhaseComplete, []string{}, 0},
		"converging pods":                             {same, []*corev1.Pod{webPod("a", upgraded, converging)}, whileConditions, protocol.PhaseWaiting, []string{}, heartbeatInterval},
		"paused":                                      {same, []*corev1.Pod{webPod("a")}, func(i *protocol.NextBatchInput) { i.Paused = true }, protocol.PhasePaused, []string{}, 0},
		"a write that the cache does not show": {same, []*corev1.Pod{webPod("a")}, func(i *protocol.NextBatchInput) {
			i.Written = []protocol.WrittenPod{{PodReference: refTo("a"), ResourceVersion: "8"}}
		}, protocol.PhaseProgressing, []string{}, heartbeatInterval},
		"rejected pods that rest": {same, []*corev1.Pod{webPod("a"), webPod("b", upgraded)}, func(i *protocol.NextBatchInput) {
			i.Rejected = protocol.Rejected{Pods: rejectedAgain(refTo("a")).Pods}
		}, protocol.PhaseWaiting, []string{}, heartbeatInterval},
		"rejected pods and other pods": {same, []*corev1.Pod{webPod("a"), webPod("b")}, func(i *protocol.NextBatchInput) {
			i.Rejected = rejectedAgain(refTo("a"))
		}, protocol.PhaseProgressing, []string{"b"}, 10 * time.Millisecond},
		"rejected pods alone": {same, []*corev1.Pod{webPod("a"), webPod("b", upgraded)}, func(i *protocol.NextBatchInput) {
			i.Rejected = rejectedAgain(refTo("a"))
		}, protocol.PhaseProgressing, []string{"a"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			set := webSet(2)
			c.set(set)
			cluster := newTestCluster(t, interceptor.Funcs{}, set, c.pods...)
			input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2}
			if c.input != nil {
				c.input(&input)
			}
			result, again, err := cluster.newNextBatch(input).check(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.want, result.Phase)
			assert.Equal(t, c.names, selectedNames(result.Pods))
			assert.Equal(t, c.again, again)
		})
	}
}

// converging makes a pod inconsistent: the upgrade to the content of the SidecarSet is written, but the
// kubelet has not applied the image yet.
func converging(pod *corev1.Pod) {
	pod.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"logs":{"revision":"` + webSet(1).Annotations[v1alpha1.HashAnnotation] + `","lastContainerStatuses":{"side":{"imageID":"id-2","restartCount":0}}}}`
	pod.Status.ContainerStatuses[0].Image = "side:v1"
}

func TestAnActivityStopsWaitingWithoutProgress(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a", upgraded, converging))
	next := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, SkipTrueConditions: true})
	_, again, err := next.check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, heartbeatInterval, again)
	cluster.clock.Step(idleTimeout)
	result, again, err := next.check(t.Context())
	require.NoError(t, err)
	assert.Zero(t, again, "the workflow waits from here on")
	assert.Equal(t, protocol.PhaseWaiting, result.Phase)
}

// The current details of the run in the UI contain the message of a waiting plan.
func TestAWaitingPlanNamesASidecarThatCannotStart(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a", upgraded, converging, func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}
	}))
	next := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, SkipTrueConditions: true})
	_, _, err := next.check(t.Context())
	require.NoError(t, err)
	cluster.clock.Step(idleTimeout)
	result, _, err := next.check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, protocol.PhaseWaiting, result.Phase)
	assert.Contains(t, result.Message, "; 1 with a sidecar that cannot start, such as d/a (container side: ImagePullBackOff, image side:v2)")
}

// If the watch is down, pods may have changed without an event.
func TestAStaleCacheDoesNotEndTheWait(t *testing.T) {
	stale := errors.New("the watch is down")
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a", upgraded, converging))
	cluster.Current = func() error { return stale }
	next := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, SkipTrueConditions: true})
	_, again, err := next.check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, heartbeatInterval, again)
	cluster.clock.Step(idleTimeout)
	_, _, err = next.check(t.Context())
	require.ErrorIs(t, err, stale)
}

// If the watch is down, the cache may miss unavailable pods, and their slots would be filled twice.
func TestAStaleCacheFillsNoSlots(t *testing.T) {
	stale := errors.New("the watch is down")
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), webPod("a"))
	cluster.Current = func() error { return stale }
	next := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, SkipTrueConditions: true})
	_, _, err := next.check(t.Context())
	require.ErrorIs(t, err, stale)

	b := cluster.batchOf("a")
	again, err := cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, heartbeatInterval, again)
	assert.Equal(t, map[string]string{"a": "side:v1"}, cluster.images())
	cluster.Current = func() error { return nil }
	_, err = cluster.refills(b)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": "side:v2"}, cluster.images())
}

// A hot pod occupies its slot until the reset, so a run that waits only for free slots would wait forever.
func TestARunWithoutResetsObservesMigratedPods(t *testing.T) {
	for name, c := range map[string]struct {
		idle  bool
		pod   *corev1.Pod
		phase protocol.Phase
	}{
		"no reset batch runs":    {true, hotPod("a"), protocol.PhaseProgressing},
		"a reset batch runs":     {false, hotPod("a"), protocol.PhaseWaiting},
		"the pods still migrate": {true, hotPod("a", migratingYet), protocol.PhaseWaiting},
		"no pod to reset":        {true, webPod("a", upgraded, converging), protocol.PhaseWaiting},
	} {
		t.Run(name, func(t *testing.T) {
			set := hotSet()
			if len(c.pod.Spec.Containers) == 1 {
				set = webSet(2)
			}
			cluster := newTestCluster(t, interceptor.Funcs{}, set, c.pod)
			next := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, SkipTrueConditions: true, MigrationIdle: c.idle})
			_, again, err := next.check(t.Context())
			require.NoError(t, err)
			assert.Equal(t, heartbeatInterval, again)
			cluster.clock.Step(heartbeatInterval)
			result, again, err := next.check(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.phase, result.Phase)
			assert.Equal(t, c.phase == protocol.PhaseProgressing, again == 0)
		})
	}
}

func TestSmallBatchesWaitForMorePodsWithinTheBatchWindow(t *testing.T) {
	const slots = 11
	// Ten of the eleven slots are in use: nine pods converge, and an earlier upgrade of the pod "waits" is not
	// consistent yet.
	pods := []*corev1.Pod{webPod("free")}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		pods = append(pods, webPod(name, upgraded, converging))
	}
	pods = append(pods, webPod("waits", func(p *corev1.Pod) {
		p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"logs":{"revision":"old","lastContainerStatuses":{"side":{"imageID":"id-1","restartCount":0}}}}`
		p.Status.ContainerStatuses[0].Image = "side:v0"
		notReady(p)
	}))
	cluster := newTestCluster(t, interceptor.Funcs{}, webSet(slots), pods...)
	next := cluster.newNextBatch(protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2})
	result, again, err := next.check(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"free"}, selectedNames(result.Pods))
	assert.Equal(t, slots*5*time.Millisecond, again)
	cluster.clock.Step(again)
	_, again, err = next.check(t.Context())
	require.NoError(t, err)
	assert.Zero(t, again)
}

// whileConditions sets the input of a plan that is requested while conditions are being written. Such a plan
// lists no conditions with the value True.
func whileConditions(i *protocol.NextBatchInput) { i.SkipTrueConditions = true }

func TestSpec7_2_ConditionsComeWithThePlan(t *testing.T) {
	type lists struct{ no, yes []string }
	for name, c := range map[string]struct {
		pods  []*corev1.Pod
		input func(*protocol.NextBatchInput)
		want  lists
		phase protocol.Phase
	}{
		"that deny come first": {[]*corev1.Pod{webPod("a", notUpgradable)}, nil, lists{no: []string{"a"}}, protocol.PhaseProgressing},
		"were rejected": {[]*corev1.Pod{webPod("a", notUpgradable), webPod("b", notUpgradable)}, func(i *protocol.NextBatchInput) {
			i.RejectedConditions = protocol.Rejected{Pods: rejectedAgain(refTo("a")).Pods}
		}, lists{no: []string{"b"}}, protocol.PhaseProgressing},
		"were rejected, all of them": {[]*corev1.Pod{webPod("a", notUpgradable)}, func(i *protocol.NextBatchInput) {
			i.RejectedConditions = protocol.Rejected{Pods: rejectedAgain(refTo("a")).Pods}
		}, lists{}, protocol.PhaseComplete},
		"were rejected, and are tried again": {[]*corev1.Pod{webPod("a", notUpgradable)}, func(i *protocol.NextBatchInput) {
			i.RejectedConditions = rejectedAgain(refTo("a"))
		}, lists{no: []string{"a"}}, protocol.PhaseProgressing},
		"that allow come once all is written":        {[]*corev1.Pod{webPod("a", upgraded, upgradedInPlace)}, nil, lists{yes: []string{"a"}}, protocol.PhaseProgressing},
		"that allow wait for a pod that starts":      {[]*corev1.Pod{webPod("a", upgraded, upgradedInPlace, converging)}, nil, lists{}, protocol.PhaseWaiting},
		"that allow wait at most a while for it":     {[]*corev1.Pod{webPod("a", upgraded, upgradedInPlace, converging)}, func(i *protocol.NextBatchInput) { i.Quiet = true }, lists{yes: []string{"a"}}, protocol.PhaseWaiting},
		"that allow wait while pods can be upgraded": {[]*corev1.Pod{webPod("a", upgraded, upgradedInPlace), webPod("b")}, nil, lists{}, protocol.PhaseProgressing},
		"that allow wait between upgrades":           {[]*corev1.Pod{webPod("a", upgraded, upgradedInPlace, converging), webPod("b")}, nil, lists{}, protocol.PhaseWaiting},
		"that allow come when no pod was upgraded for a while": {[]*corev1.Pod{webPod("a", upgraded, upgradedInPlace, converging), webPod("b")},
			func(i *protocol.NextBatchInput) { i.Quiet = true }, lists{yes: []string{"a"}}, protocol.PhaseWaiting},
		"that allow are being written": {[]*corev1.Pod{webPod("a", upgraded, upgradedInPlace)}, func(i *protocol.NextBatchInput) { i.SkipTrueConditions = true }, lists{}, protocol.PhaseComplete},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newTestCluster(t, interceptor.Funcs{}, webSet(1), c.pods...)
			input := protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2}
			if c.input != nil {
				c.input(&input)
			}
			result, _, err := cluster.newNextBatch(input).check(t.Context())
			require.NoError(t, err)
			var got lists
			for _, pod := range result.FalseConditions {
				got.no = append(got.no, pod.Name)
			}
			for _, pod := range result.TrueConditions {
				got.yes = append(got.yes, pod.Name)
			}
			assert.Equal(t, c.want, got)
			assert.Equal(t, c.phase, result.Phase)
		})
	}
}

// upgradedInPlace records in the pod an upgrade in place to the content of the SidecarSet.
func upgradedInPlace(pod *corev1.Pod) {
	pod.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"logs":{"revision":"` + webSet(1).Annotations[v1alpha1.HashAnnotation] + `","lastContainerStatuses":{"side":{"imageID":"id-1","restartCount":0}}}}`
}

func TestNextBatchGivesTheLeaseBackOnceNothingIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*v1alpha1.SidecarSet)
		held bool
		stay bool
	}{
		"complete":   {func(*v1alpha1.SidecarSet) {}, false, true},
		"superseded": {func(s *v1alpha1.SidecarSet) { s.Generation = 3 }, true, true},
		"deleted":    {func(s *v1alpha1.SidecarSet) { s.UID = "another" }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			set := webSet(1)
			c.set(set)
			cluster := newTestCluster(t, interceptor.Funcs{}, set, webPod("a", upgraded))
			lease := leaseOf(cluster.Activities, "one")
			_, err := acquire(t.Context(), lease)
			require.NoError(t, err)
			err = inActivity(t, nil, func(ctx context.Context) error {
				_, err := cluster.NextBatch(ctx, protocol.NextBatchInput{SidecarSet: webSetReference, Generation: 2, Run: "one"})
				return err
			})
			require.NoError(t, err)
			assert.Equal(t, c.held, held(t, lease))
			left, err := lease.read(t.Context())
			require.NoError(t, err)
			assert.Equal(t, c.stay, left != nil)
		})
	}
}

// A run waits for its reset batch before the run ends. Otherwise, the batch could still write after the end
// of the run, until the next heartbeat of the batch.
func TestSpec7_7_ARunDoesNotEndBesideItsResetBatch(t *testing.T) {
	for _, c := range []struct {
		before    protocol.Phase
		migrating int
		idle      bool
		want      protocol.Phase
	}{
		{protocol.PhaseComplete, 1, false, protocol.PhaseWaiting},
		{protocol.PhaseNotUpdate, 1, false, protocol.PhaseWaiting},
		{protocol.PhaseComplete, 1, true, protocol.PhaseComplete},
		{protocol.PhaseComplete, 0, false, protocol.PhaseComplete},
		{protocol.PhaseFrozen, 1, false, protocol.PhaseFrozen},
	} {
		n := &nextBatch{input: protocol.NextBatchInput{MigrationIdle: c.idle}}
		plan := rollout.Plan{Phase: c.before, Counts: protocol.Counts{Migrating: c.migrating}}
		n.awaitResets(&plan)
		assert.Equal(t, c.want, plan.Phase, "%+v", c)
	}
}
