package inject

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
)

func pinnedTo(policy v1alpha1.SidecarSetInjectRevisionPolicy, change func(*v1alpha1.SidecarSet)) *v1alpha1.SidecarSet {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	set.Spec.InjectionStrategy.Revision = &v1alpha1.SidecarSetInjectRevision{RevisionName: new("old"), Policy: policy}
	change(set)
	return set
}

func TestSpec4_11_WhichPodsGetThePinnedRevision(t *testing.T) {
	const always, partial = v1alpha1.AlwaysSidecarSetInjectRevisionPolicy, v1alpha1.PartialSidecarSetInjectRevisionPolicy
	canary := &metav1.LabelSelector{MatchLabels: map[string]string{"canary": "true"}}
	for name, test := range map[string]struct {
		set           *v1alpha1.SidecarSet
		plain, canary bool
	}{
		"not pinned":              {fixture.SidecarSet("s"), false, false},
		"Always":                  {pinnedTo(always, func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Selector = canary }), true, true},
		"Partial with a selector": {pinnedTo(partial, func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Selector = canary }), true, false},
		"Partial while paused": {pinnedTo(partial, func(s *v1alpha1.SidecarSet) {
			s.Spec.UpdateStrategy.Selector, s.Spec.UpdateStrategy.Paused = canary, true
		}), true, true},
		"Partial without partition": {pinnedTo(partial, func(*v1alpha1.SidecarSet) {}), false, false},
		"Partial 0%":                {pinnedTo(partial, func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Partition = new(intstr.FromString("0%")) }), false, false},
		"Partial 100%":              {pinnedTo(partial, func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Partition = new(intstr.FromString("100%")) }), true, true},
		"Partial 0 of no pods":      {pinnedTo(partial, func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(0)) }), false, false},
		"Partial 3 of no pods":      {pinnedTo(partial, func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Partition = new(intstr.FromInt32(3)) }), true, true},
		"Partial all of the pods": {pinnedTo(partial, func(s *v1alpha1.SidecarSet) {
			s.Spec.UpdateStrategy.Partition, s.Status.MatchedPods = new(intstr.FromInt32(7)), 7
		}), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := fixture.Pod()
			got, err := UsesPinned(test.set, pod, "")
			require.NoError(t, err)
			assert.Equal(t, test.plain, got, "plain pod")
			pod.Labels["canary"] = "true"
			got, err = UsesPinned(test.set, pod, "")
			require.NoError(t, err)
			assert.Equal(t, test.canary, got, "canary pod")
		})
	}
}

func TestSpec4_11_ThePartitionDecidesTheShareAndEachPodKeepsItsAnswer(t *testing.T) {
	const pods = 1000
	for name, change := range map[string]func(*v1alpha1.SidecarSet){
		"percent": func(s *v1alpha1.SidecarSet) { s.Spec.UpdateStrategy.Partition = new(intstr.FromString("30%")) },
		"number": func(s *v1alpha1.SidecarSet) {
			s.Spec.UpdateStrategy.Partition, s.Status.MatchedPods = new(intstr.FromInt32(3)), 10
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := pinnedTo(v1alpha1.PartialSidecarSetInjectRevisionPolicy, change)
			pinned := 0
			for i := range pods {
				pod := fixture.Pod()
				pod.Name = fmt.Sprintf("web-%d", i)
				first, err := UsesPinned(set, pod, "first")
				require.NoError(t, err)
				second, err := UsesPinned(set, pod.DeepCopy(), "second")
				require.NoError(t, err)
				require.Equal(t, first, second)
				if first {
					pinned++
				}
			}
			assert.InDelta(t, 0.3*pods, pinned, 0.03*pods)
		})
	}
}

func TestSpec4_11_PodsOfOneReplicaSetGetTheShareToo(t *testing.T) {
	const replicas = 400
	set := pinnedTo(v1alpha1.PartialSidecarSetInjectRevisionPolicy, func(s *v1alpha1.SidecarSet) {
		s.Spec.UpdateStrategy.Partition = new(intstr.FromString("50%"))
	})
	for _, owner := range []types.UID{"a", "b", "c", "d"} {
		pinned := 0
		for i := range replicas {
			// API servers name a pod of a ReplicaSet after admission.
			pod := fixture.Pod()
			pod.Name, pod.GenerateName = "", "web-5d9c-"
			pod.OwnerReferences = []metav1.OwnerReference{{UID: owner, Controller: new(true)}}
			request := types.UID(fmt.Sprintf("request-%s-%d", owner, i))
			first, err := UsesPinned(set, pod, request)
			require.NoError(t, err)
			again, err := UsesPinned(set, pod.DeepCopy(), request)
			require.NoError(t, err)
			require.Equal(t, first, again, "a request that is sent again")
			if first {
				pinned++
			}
		}
		assert.InDelta(t, 0.5*replicas, pinned, 0.1*replicas, "ReplicaSet %s", owner)
	}
}

func TestSpec4_11_ThePlaceDependsOnNamespaceNameAndOwner(t *testing.T) {
	owned := func(namespace, generateName, name, owner string) *corev1.Pod {
		pod := fixture.Pod()
		pod.Namespace, pod.GenerateName, pod.Name = namespace, generateName, name
		pod.OwnerReferences = []metav1.OwnerReference{{UID: "bystander"}, {UID: types.UID(owner), Controller: new(true)}}
		return pod
	}
	base := podHash(owned("n", "g-", "", "o"), "r")
	assert.Equal(t, base, podHash(owned("n", "g-", "", "o"), "r"))
	assert.NotEqual(t, base, podHash(owned("n", "g-", "", "o"), "s"), "without a name, the request counts")
	for _, other := range []*corev1.Pod{owned("m", "g-", "", "o"), owned("n", "h-", "", "o"), owned("n", "g-", "g-1", "o"), owned("n", "g-", "", "p")} {
		assert.NotEqual(t, base, podHash(other, "r"))
	}
	assert.Equal(t, podHash(owned("n", "g-", "g-1", "o"), "r"), podHash(owned("n", "h-", "g-1", "o"), "s"), "a name, such as one of a StatefulSet, counts alone")
}

func TestSpec4_11_ContentAndHashesComeFromTheRevision(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	set.Labels = map[string]string{v1alpha1.CustomVersionLabel: "1"}
	old, err := revision.New(set, "kruise-system", 1)
	require.NoError(t, err)
	set.Spec.Containers[0].Image = "side:v2"
	fixture.Hashed(set)
	set.Labels[v1alpha1.CustomVersionLabel] = "2"
	newest, err := revision.New(set, "kruise-system", 2)
	require.NoError(t, err)
	sorted := []*appsv1.ControllerRevision{old, newest}

	for name, pin := range map[string]v1alpha1.SidecarSetInjectRevision{
		"by name": {RevisionName: &old.Name}, "by version": {CustomVersion: new("1")}, "the name counts more": {RevisionName: &old.Name, CustomVersion: new("2")},
	} {
		set.Spec.InjectionStrategy.Revision = &pin
		found, err := revision.FindPinned(set, sorted)
		require.NoError(t, err, name)
		prepared, err := PreparePinned(set, found)
		require.NoError(t, err, name)
		injection, err := Pod(fixture.Pod(fixture.Container("app")), []*Set{prepared}, noon)
		require.NoError(t, err, name)
		require.Len(t, injection.containers.before, 1, name)
		assert.Equal(t, "side:v1", injection.containers.before[0].Image, name)
		assert.JSONEq(t, `{"s":{"updateTimestamp":"2024-01-02T12:00:00Z","hash":"`+old.Annotations[v1alpha1.HashAnnotation]+`","sidecarSetName":"s","sidecarList":["side"],"controllerRevision":"`+old.Name+`"}}`,
			injection.changed[v1alpha1.HashAnnotation], name)
	}
	assert.Equal(t, "side:v2", set.Spec.Containers[0].Image, "the set itself stays")
}
