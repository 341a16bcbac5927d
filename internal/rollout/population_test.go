package rollout

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func populationSet() *v1alpha1.SidecarSet {
	set := strategy(nil)
	set.UID, set.Generation = "u", 1
	set.Annotations = map[string]string{v1alpha1.HashAnnotation: "new", v1alpha1.HashWithoutImageAnnotation: "blank"}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:2"}}}
	return set
}

func member(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "d", Name: name, UID: types.UID(name), ResourceVersion: "1", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{
			v1alpha1.InjectedListAnnotation:     "other,s",
			v1alpha1.HashAnnotation:             `{"s":{"hash":"old"}}`,
			v1alpha1.HashWithoutImageAnnotation: `{"s":{"hash":"blank"}}`,
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
		p.ResourceVersion, p.Annotations[v1alpha1.HashAnnotation] = "2", `{"s":{"hash":"new"}}`
	})
	assert.True(t, look().Updated, "the pod changed")
	set.Generation, set.Annotations[v1alpha1.HashAnnotation] = 2, "newer"
	assert.False(t, look().Updated, "the set changed")
}

func BenchmarkPopulation(b *testing.B) {
	pods := make([]*corev1.Pod, 10_000)
	for i := range pods {
		pods[i] = member(fmt.Sprintf("p%d", i))
	}
	for name, cache := range map[string]func() *setCache{
		"first look": func() *setCache { return &setCache{} },
		"nothing changed": func() func() *setCache {
			m := &setCache{}
			return func() *setCache { return m }
		}(),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := cache().population(populationSet(), pods, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
