package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/internal/stage"
)

// edited returns a SidecarSet with image side:v2 and generation 2, and the last good revision, which has
// another image.
func edited(t testing.TB) (set *v1alpha1.SidecarSet, good *appsv1.ControllerRevision) {
	return editedSet(t, "s", "side", func(*v1alpha1.SidecarSet) {})
}

// editedSet is like edited, but with the given names of the SidecarSet and of the container. more adds content
// that only the good revision has.
func editedSet(t testing.TB, name, container string, more func(*v1alpha1.SidecarSet)) (set *v1alpha1.SidecarSet, good *appsv1.ControllerRevision) {
	set = fixture.SidecarSet(name, fixture.Sidecar(container))
	former := set.DeepCopy()
	more(former)
	require.NoError(t, revision.Complete(former, nil))
	good, err := revision.New(former, "system", 1)
	require.NoError(t, err)
	set.Status.GoodRevisions = []v1alpha1.GoodRevision{{Revision: good.Name, Hash: former.Annotations[v1alpha1.HashAnnotation], ResourceVersion: "1"}}
	set.Spec.Containers[0].Image = container + ":v2"
	require.NoError(t, revision.Complete(set, nil))
	require.NoError(t, revision.WriteHashes(set))
	set.Generation, set.Status.MatchedPods = 2, 20
	return set, good
}

// inStep records a stage of the generation in the status of a SidecarSet.
func inStep(set *v1alpha1.SidecarSet, s protocol.Stage) {
	set.Status.Rollout = &v1alpha1.RolloutStatus{Generation: set.Generation}
	stage.ToStatus(set, &s)
}

func stepsPolicy(upTo ...intstr.IntOrString) *outriggerv1.RolloutPolicy {
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "steps"}}
	for _, one := range upTo {
		policy.Spec.Steps = append(policy.Spec.Steps, outriggerv1.RolloutStep{UpTo: one})
	}
	return policy
}

// newPods admits 200 pods of one ReplicaSet, and returns the number of pods for each image of the sidecar.
func newPods(t *testing.T, handler *Handler) map[string]int {
	t.Helper()
	images := map[string]int{}
	for i := range 200 {
		images[injectedPod(t, handler, types.UID(fmt.Sprintf("request-%d", i))).Spec.Containers[0].Image]++
	}
	return images
}

// injectedPod returns a new pod of a ReplicaSet after the admission of the pod.
func injectedPod(t *testing.T, handler *Handler, request types.UID) *corev1.Pod {
	t.Helper()
	pod := fixture.Pod(fixture.Container("app"))
	pod.Name, pod.GenerateName = "", "web-5d9c-"
	response := admittedAs(t, handler, request, pod)
	require.True(t, response.Allowed, "%v", response.Result)
	patch, err := jsonpatch.DecodePatch(response.Patch)
	require.NoError(t, err)
	sent, err := json.Marshal(pod)
	require.NoError(t, err)
	patched, err := patch.Apply(sent)
	require.NoError(t, err)
	injected := &corev1.Pod{}
	require.NoError(t, json.Unmarshal(patched, injected))
	return injected
}

func TestSpec11_5_NewPodsFollowTheStep(t *testing.T) {
	const v1, v2 = "side:v1", "side:v2"
	set, good := edited(t)
	handler := handlerFor(t, interceptor.Funcs{}, []client.Object{good}, set)
	put := func(change func()) {
		set = set.DeepCopy()
		change()
		handler.sets.informed.put(set)
	}
	assert.Equal(t, map[string]int{v2: 200}, newPods(t, handler), "without a policy, all new pods get the new content")

	policies, policy := handler.PolicyEventHandler(), stepsPolicy(intstr.FromString("50%"), intstr.FromString("100%"))
	policies.OnAdd(policy, true)
	assert.Equal(t, map[string]int{v1: 200}, newPods(t, handler), "no step is recorded")

	current := protocol.Stage{Generation: 2, Policy: "steps", Steps: 2, Step: &protocol.Step{UpTo: intstr.FromString("50%")}}
	put(func() { inStep(set, current) })
	images := newPods(t, handler)
	assert.InDelta(t, 100, images[v2], 40)
	assert.Equal(t, 200, images[v1]+images[v2])
	assert.Equal(t, images, newPods(t, handler), "requests that are sent again get the same answers")

	policies.OnDelete(policy)
	assert.Equal(t, images, newPods(t, handler), "the step that has begun stays")

	put(func() { inStep(set, protocol.Stage{Generation: 2, Policy: "steps", Steps: 2, Index: 1}) })
	assert.Equal(t, map[string]int{v2: 200}, newPods(t, handler), "no policy limits the next step")
	policies.OnAdd(policy, false)
	assert.Equal(t, images, newPods(t, handler), "the next step has not begun")
	policies.OnUpdate(policy, stepsPolicy(intstr.FromString("0%"), intstr.FromString("100%")))
	assert.Equal(t, map[string]int{v1: 200}, newPods(t, handler))

	current = protocol.Stage{Generation: 2, Policy: "steps", Steps: 2, Index: 1, Done: true}
	put(func() { inStep(set, current) })
	assert.Equal(t, map[string]int{v2: 200}, newPods(t, handler), "all steps have ended")

	put(func() { set.Generation = 3 })
	assert.Equal(t, map[string]int{v1: 200}, newPods(t, handler), "the next edit")
	put(func() { set.Status.GoodRevisions[0].Hash = set.Annotations[v1alpha1.HashAnnotation] })
	assert.Equal(t, map[string]int{v2: 200}, newPods(t, handler), "an edit of other fields")
}

func TestSpec11_5_WithoutALastGoodRevisionNewPodsGetTheCurrentContent(t *testing.T) {
	set, good := edited(t)
	damaged := good.DeepCopy()
	damaged.Data.Raw = []byte(`{}`)
	first := set.DeepCopy()
	first.Status.GoodRevisions = nil
	for name, c := range map[string]struct {
		set      *v1alpha1.SidecarSet
		recorded []client.Object
	}{
		"the first rollout":           {first, []client.Object{good}},
		"the revision is missing":     {set, nil},
		"the revision is not legible": {set, []client.Object{damaged}},
	} {
		t.Run(name, func(t *testing.T) {
			handler := handlerFor(t, interceptor.Funcs{}, c.recorded, c.set)
			handler.PolicyEventHandler().OnAdd(stepsPolicy(intstr.FromInt32(1)), true)
			assert.Equal(t, map[string]int{"side:v2": 200}, newPods(t, handler))
		})
	}
}

// Only the last good revision has the volume that conflicts with the other SidecarSet.
func TestSpec11_5_AFormerRevisionThatConflictsRejectsNoPod(t *testing.T) {
	mounting := func(content string) func(*v1alpha1.SidecarSet) {
		return func(s *v1alpha1.SidecarSet) {
			s.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
			s.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: content}}}}}
		}
	}
	step := protocol.Stage{Generation: 2, Policy: "steps", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("0%")}}
	set, good := editedSet(t, "s", "side", mounting("one"))
	inStep(set, step)
	other := fixture.SidecarSet("t", fixture.Sidecar("other"))
	mounting("two")(other)
	require.NoError(t, revision.Complete(other, nil))
	image := func(handler *Handler, container string) string {
		for _, c := range injectedPod(t, handler, "request").Spec.Containers {
			if c.Name == container {
				return c.Image
			}
		}
		return ""
	}
	handler := handlerFor(t, interceptor.Funcs{}, []client.Object{good}, set, other)
	assert.Equal(t, "side:v2", image(handler, "side"))
	handler = handlerFor(t, interceptor.Funcs{}, []client.Object{good}, set)
	assert.Equal(t, "side:v1", image(handler, "side"))

	for want, more := range map[string]func(*v1alpha1.SidecarSet){"third:v1": func(*v1alpha1.SidecarSet) {}, "third:v2": mounting("three")} {
		third, thirdGood := editedSet(t, "a", "third", more)
		inStep(third, step)
		handler = handlerFor(t, interceptor.Funcs{}, []client.Object{good, thirdGood}, set, other, third)
		assert.Equal(t, want, image(handler, "third"))
		assert.Equal(t, "side:v2", image(handler, "side"))
	}
}

// A workload may delete its last old pod before the creation of the next pod. Between the deletion and the
// creation, the SidecarSet matches no pod.
func TestSpec11_5_WithoutPodsContentThatCannotBeUpgradedInPlaceIsNotWithheld(t *testing.T) {
	withArgs := func(s *v1alpha1.SidecarSet) { s.Spec.Containers[0].Args = []string{"--old"} }
	complete := func(set *v1alpha1.SidecarSet, generation int64) {
		set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: v1alpha1.ReasonRolloutComplete, ObservedGeneration: generation}}
	}
	for _, c := range []struct {
		name  string
		more  func(*v1alpha1.SidecarSet)
		when  func(*v1alpha1.SidecarSet)
		image string
	}{
		{"images differ", func(*v1alpha1.SidecarSet) {}, func(set *v1alpha1.SidecarSet) { complete(set, 2) }, "side:v1"},
		{"arguments differ", withArgs, func(set *v1alpha1.SidecarSet) { complete(set, 2) }, "side:v2"},
		{"status is of the former generation", withArgs, func(set *v1alpha1.SidecarSet) { complete(set, 1) }, "side:v1"},
		{"the rollout is not complete", withArgs, func(*v1alpha1.SidecarSet) {}, "side:v1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, good := editedSet(t, "s", "side", c.more)
			inStep(set, protocol.Stage{Generation: 2, Policy: "steps", Steps: 2, Step: &protocol.Step{UpTo: intstr.FromInt32(1)}})
			set.Status.MatchedPods = 0
			c.when(set)
			handler := handlerFor(t, interceptor.Funcs{}, []client.Object{good}, set)
			assert.Equal(t, c.image, injectedPod(t, handler, "request").Spec.Containers[0].Image)
		})
	}
}

// A pod of a Job may end before its upgrade.
func TestSpec11_5_WithoutPodsThePodsOfJobsGetTheNewestContent(t *testing.T) {
	set, good := edited(t)
	inStep(set, protocol.Stage{Generation: 2, Policy: "steps", Steps: 2, Step: &protocol.Step{UpTo: intstr.FromInt32(1)}})
	set.Status.MatchedPods = 0
	set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProgressing, Reason: v1alpha1.ReasonRolloutComplete, ObservedGeneration: 2}}
	handler := handlerFor(t, interceptor.Funcs{}, []client.Object{good}, set)
	compiled := handler.sets.informed.compiled.Matching(fixture.Pod().Labels)
	require.Len(t, compiled, 1)
	for kind, image := range map[string]string{"Job": "side:v2", "ReplicaSet": "side:v1"} {
		pod := fixture.Pod()
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Controller: new(true)}}
		version, _, err := handler.version(t.Context(), "request", pod, compiled[0])
		require.NoError(t, err)
		assert.Equal(t, image, version.Spec.Containers[0].Image, kind)
	}
}

func TestSpec11_5_ARevisionThatCannotBeListedRejectsNoPod(t *testing.T) {
	failing := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, ok := list.(*appsv1.ControllerRevisionList); ok {
			return errors.New("forbidden")
		}
		return c.List(ctx, list, options...)
	}}
	set, good := edited(t)
	inStep(set, protocol.Stage{Generation: 2, Policy: "steps", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("0%")}})
	handler := handlerFor(t, failing, []client.Object{good}, set)
	assert.Equal(t, map[string]int{"side:v2": 200}, newPods(t, handler))

	pinned := set.DeepCopy()
	pinned.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: &good.Name, Policy: v1alpha1.AlwaysSidecarSetInjectRevisionPolicy}
	response := admitted(t, handlerFor(t, failing, []client.Object{good}, pinned), fixture.Pod())
	assert.False(t, response.Allowed, "a pinned revision is not replaced")
	assert.Contains(t, response.Result.Message, "list its revisions: forbidden")
}

func TestSpec11_5_APinnedRevisionWinsOverTheStep(t *testing.T) {
	set, good := edited(t)
	pinned, err := revision.New(fixture.SidecarSet("s", fixture.Sidecar("side", func(c *v1alpha1.SidecarContainer) { c.Image = "side:pinned" })), "system", 2)
	require.NoError(t, err)
	inStep(set, protocol.Stage{Generation: 2, Policy: "steps", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("0%")}})
	pin := &v1alpha1.SidecarSetInjectRevision{RevisionName: &pinned.Name, Policy: v1alpha1.AlwaysSidecarSetInjectRevisionPolicy}
	set.Spec.InjectionStrategy.Revision = pin
	handler := handlerFor(t, interceptor.Funcs{}, []client.Object{good, pinned}, set)
	assert.Equal(t, map[string]int{"side:pinned": 200}, newPods(t, handler))
	pin.Policy = v1alpha1.PartialSidecarSetInjectRevisionPolicy
	assert.Equal(t, map[string]int{"side:v2": 200}, newPods(t, handler), "the partition keeps no pod")
}

// A later step upgrades the pods that were created with the last good revision.
func TestSpec11_5_PodsWithTheLastGoodRevisionAreCandidates(t *testing.T) {
	set, good := edited(t)
	inStep(set, protocol.Stage{Generation: 2, Policy: "steps", Steps: 1, Step: &protocol.Step{UpTo: intstr.FromString("0%")}})
	pod := injectedPod(t, handlerFor(t, interceptor.Funcs{}, []client.Object{good}, set), "1")
	pod.Name, pod.UID = "web-1", "1"
	assert.Contains(t, pod.Annotations[v1alpha1.HashAnnotation], good.Annotations[v1alpha1.HashAnnotation])
	assert.Contains(t, pod.Annotations[v1alpha1.HashAnnotation], `"controllerRevision":"`+good.Name+`"`)

	matched, err := rollout.Population(set, []*corev1.Pod{pod}, nil)
	require.NoError(t, err)
	plan, err := rollout.NextInStage(set, matched, nil, stage.OfStatus(set))
	require.NoError(t, err)
	assert.Equal(t, []int{1, 0, 1}, []int{plan.Counts.Matched, plan.Counts.Updated, plan.Counts.Remaining})
	assert.Equal(t, protocol.PhaseStepReached, plan.Phase)
	plan, err = rollout.NextInStage(set, matched, nil, &protocol.Stage{Done: true})
	require.NoError(t, err)
	require.Len(t, plan.Pods, 1)
	assert.Equal(t, "web-1", plan.Pods[0].Name)
}
