package rollout

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

func populationSet() *v1alpha1.SidecarSet {
	set := strategy(nil)
	set.UID, set.Generation = "u", 1
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:2"}}}
	return fixture.Hashed(set)
}

func member(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "d", Name: name, UID: types.UID(name), ResourceVersion: "1", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{
			v1alpha1.InjectedListAnnotation:     "other,s",
			v1alpha1.HashAnnotation:             `{"s":{"hash":"old"}}`,
			v1alpha1.HashWithoutImageAnnotation: fixture.HashEntry(populationSet(), v1alpha1.HashWithoutImageAnnotation),
		},
	}}
	pod.Spec.Containers = []corev1.Container{{Name: "side", Image: "side:1"}}
	for _, c := range change {
		c(pod)
	}
	return pod
}

func TestSpec3_MatchedPods(t *testing.T) {
	now := metav1.Now()
	pods := []*corev1.Pod{
		member("matched"),
		member("succeeded", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		member("failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
		member("terminating", func(p *corev1.Pod) { p.DeletionTimestamp = &now }),
		member("mirror", func(p *corev1.Pod) { p.Annotations[corev1.MirrorPodAnnotationKey] = "hash" }),
		member("relabelled", func(p *corev1.Pod) { p.Labels = nil }),
		member("not-injected", func(p *corev1.Pod) { p.Annotations[v1alpha1.InjectedListAnnotation] = "other" }),
		member("lacks-container", func(p *corev1.Pod) { p.Spec.Containers = nil }),
		member("unreadable", func(p *corev1.Pod) { p.Annotations[v1alpha1.HashAnnotation] = "{" }),
		member("elsewhere", func(p *corev1.Pod) { p.Namespace = "out" }),
	}
	set := populationSet()
	set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"in": "yes"}}
	labels := func(namespace string) (map[string]string, error) {
		return map[string]map[string]string{"d": {"in": "yes"}}[namespace], nil
	}
	matched, err := Population(set, pods, labels)
	require.NoError(t, err)
	require.Len(t, matched, 1)
	assert.Equal(t, "matched", matched[0].Name)

	_, err = Population(set, pods, func(string) (map[string]string, error) { return nil, errors.New("cache away") })
	require.EqualError(t, err, "SidecarSet s: look up namespace d: cache away")
}

func TestPopulationCacheIsNeverStale(t *testing.T) {
	set, pod, cache := populationSet(), member("a"), &PopulationCache{}
	look := func() Pod {
		matched, err := cache.Population(set, []*corev1.Pod{pod}, nil)
		require.NoError(t, err)
		require.Len(t, matched, 1)
		return matched[0]
	}
	assert.False(t, look().Updated)
	pod = member("a", func(p *corev1.Pod) {
		p.ResourceVersion, p.Annotations[v1alpha1.HashAnnotation] = "2", fixture.HashEntry(populationSet(), v1alpha1.HashAnnotation)
	})
	assert.True(t, look().Updated, "the pod changed")
	set.Generation, set.Spec.Containers[0].Image = 2, "side:3"
	assert.False(t, look().Updated, "the set changed")
	set.Generation, set.Spec.Selector = 3, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	matched, err := cache.Population(set, []*corev1.Pod{pod}, nil)
	require.NoError(t, err)
	assert.Empty(t, matched, "the selector changed")
	set.Generation, set.Spec.Selector = 4, &metav1.LabelSelector{MatchLabels: map[string]string{"-": "-"}}
	for range 2 {
		_, err = cache.Population(set, []*corev1.Pod{pod}, nil)
		require.ErrorContains(t, err, "SidecarSet s: spec.selector: ")
	}
}

func BenchmarkPopulation(b *testing.B) {
	pods := make([]*corev1.Pod, 10_000)
	for i := range pods {
		pods[i] = member(fmt.Sprintf("p%d", i))
	}
	kept := new(PopulationCache)
	for name, cache := range map[string]func() *PopulationCache{
		"first look":      func() *PopulationCache { return new(PopulationCache) },
		"nothing changed": func() *PopulationCache { return kept },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := cache().Population(populationSet(), pods, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A pod that an upgrade made unavailable counts toward the cluster-wide limit, even if the pod no longer matches
// or the SidecarSet has changed since. A pod that was created with the current version does not count.
func TestSpec7_5_TheClusterWideLimitCountsPodsThatUpgradesMadeUnavailable(t *testing.T) {
	upgraded := func(p *corev1.Pod) {
		p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"s":{"revision":"old","lastContainerStatuses":{"side":{"imageID":"id-1","restartCount":0}}}}`
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   int
	}{
		"never upgraded": {func(*corev1.Pod) {}, 0},
		"made with the version": {func(p *corev1.Pod) {
			p.Annotations[v1alpha1.HashAnnotation] = fixture.HashEntry(populationSet(), v1alpha1.HashAnnotation)
		}, 0},
		"upgraded":                         {upgraded, 1},
		"upgraded, then relabelled":        {func(p *corev1.Pod) { upgraded(p); p.Labels = nil }, 1},
		"upgraded, lacks a container":      {func(p *corev1.Pod) { upgraded(p); p.Spec.Containers = nil }, 1},
		"upgraded and terminating":         {func(p *corev1.Pod) { upgraded(p); p.DeletionTimestamp = new(metav1.Now()) }, 0},
		"upgraded by another set":          {func(p *corev1.Pod) { upgraded(p); p.Annotations[v1alpha1.InjectedListAnnotation] = "other" }, 0},
		"upgraded while it was unready":    {func(p *corev1.Pod) { upgraded(p); p.Annotations[v1alpha1.UnavailableSinceAnnotation] = `{"s":null}` }, 0},
		"upgraded, and ready again":        {func(p *corev1.Pod) { upgraded(p); serve(p, 1) }, 0},
		"upgraded, and not consistent yet": {func(p *corev1.Pod) { upgraded(p); serve(p, 0) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n, _, err := new(PopulationCache).CountUnavailable(populationSet(), []*corev1.Pod{member("a", c.change)})
			require.NoError(t, err)
			assert.Equal(t, c.want, n)
		})
	}
}

// serve makes a pod ready. restarts is the restart count and the number of the image.
func serve(p *corev1.Pod, restarts int32) {
	p.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "side", Image: fmt.Sprintf("side:%d", restarts), ImageID: fmt.Sprintf("id-%d", 1+restarts), RestartCount: restarts, Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}},
	}
}

// Pods with damaged annotations are not matched, so only the result of Unreadable names these pods.
func TestSpec3_PodsWithDamagedAnnotationsAreNamed(t *testing.T) {
	damaged := func(p *corev1.Pod) { p.Annotations[v1alpha1.HashAnnotation] = "{" }
	pods := []*corev1.Pod{
		member("matched"),
		member("b", damaged), member("a", damaged),
		member("relabelled", damaged, func(p *corev1.Pod) { p.Labels = nil }),
		member("elsewhere", damaged, func(p *corev1.Pod) { p.Namespace = "other" }),
		member("ended", damaged, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		member("not-injected", damaged, func(p *corev1.Pod) { p.Annotations[v1alpha1.InjectedListAnnotation] = "other" }),
	}
	var cache PopulationCache
	set := populationSet()
	set.Spec.Namespace = "d"
	matched, err := cache.Population(set, pods, nil)
	require.NoError(t, err)
	assert.Len(t, matched, 1)
	found, err := cache.Unreadable(set, pods, nil)
	require.NoError(t, err)
	assert.Equal(t, 2, found.Count)
	assert.Equal(t, "d/a", found.Example)
	assert.ErrorContains(t, found.Cause, v1alpha1.HashAnnotation)

	pods[1], pods[2] = member("b"), member("a")
	found, err = cache.Unreadable(set, pods, nil)
	require.NoError(t, err)
	assert.Zero(t, found)

	set.Spec.Namespace, set.Spec.NamespaceSelector = "", &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	set.Generation++
	pods = []*corev1.Pod{member("a", damaged), member("removed", damaged, func(p *corev1.Pod) { p.Namespace = "removed" })}
	found, err = cache.Unreadable(set, pods, func(namespace string) (map[string]string, error) {
		if namespace == "removed" {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
		}
		return map[string]string{"team": "a"}, nil
	})
	require.NoError(t, err)
	assert.Equal(t, 1, found.Count)
}
