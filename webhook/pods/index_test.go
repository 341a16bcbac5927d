package pods

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/revision"
)

func selecting(name string, selector metav1.LabelSelector) *v1alpha1.SidecarSet {
	set := fixture.SidecarSet(name, fixture.Sidecar("side"))
	set.Spec.Selector = &selector
	return set
}

func expression(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func found(index *setIndex, labels map[string]string) []string {
	var names []string
	for _, set := range index.matching(labels) {
		names = append(names, set.name)
	}
	return names
}

func TestTheIndexFindsMatchingSets(t *testing.T) {
	metrics := newMetrics(prometheus.NewRegistry())
	index := newSetIndex(logr.Discard(), metrics)
	handler := events(index.put, index.remove)
	for _, set := range []*v1alpha1.SidecarSet{
		selecting("label", metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}),
		selecting("labels", metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "a"}}),
		selecting("in", expression("app", metav1.LabelSelectorOpIn, "web", "db", "web")),
		selecting("exists", expression("app", metav1.LabelSelectorOpExists)),
		selecting("not-in", expression("app", metav1.LabelSelectorOpNotIn, "web")),
		selecting("empty", metav1.LabelSelector{}),
		selecting("unreadable", expression("app", "Is", "web")),
		selecting("unreadable-tier", metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "a b"}}),
	} {
		handler.OnAdd(set, true)
	}
	web, tierA, db := map[string]string{"app": "web"}, map[string]string{"app": "web", "tier": "a"}, map[string]string{"app": "db"}
	assert.Equal(t, []string{"exists", "in", "label", "unreadable", "unreadable-tier"}, found(index, web))
	assert.Equal(t, []string{"exists", "in", "label", "labels", "unreadable", "unreadable-tier"}, found(index, tierA))
	assert.Equal(t, []string{"exists", "in", "not-in", "unreadable"}, found(index, db))
	assert.Equal(t, []string{"not-in", "unreadable"}, found(index, nil))

	handler.OnUpdate(nil, selecting("label", metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}))
	handler.OnUpdate(nil, selecting("unreadable-tier", metav1.LabelSelector{MatchLabels: map[string]string{"app": "cache"}}))
	handler.OnDelete(selecting("unreadable", metav1.LabelSelector{}))
	handler.OnDelete(selecting("exists", metav1.LabelSelector{}))
	handler.OnDelete(selecting("in", metav1.LabelSelector{}))
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "not-in", Obj: selecting("not-in", metav1.LabelSelector{})})
	assert.Equal(t, []string{"labels"}, found(index, tierA))
	assert.Equal(t, []string{"label"}, found(index, db))

	handler.OnDelete(selecting("label", metav1.LabelSelector{}))
	handler.OnDelete(selecting("labels", metav1.LabelSelector{}))
	handler.OnDelete(selecting("empty", metav1.LabelSelector{}))
	handler.OnDelete(selecting("unreadable-tier", metav1.LabelSelector{}))
	assert.Empty(t, found(index, tierA))
	assert.Empty(t, found(index, db))
}

func TestTheRevisionIsTheRegisteredOneOfThisGeneration(t *testing.T) {
	set := fixture.SidecarSet("s", fixture.Sidecar("side"))
	set.Generation, set.Status.ObservedGeneration, set.Status.LatestRevision = 2, 1, "s-registered"
	own, err := revision.Current(set)
	assert.NoError(t, err)
	assert.NotEqual(t, "s-registered", own)
	set.Status.ObservedGeneration = 2
	registered, err := revision.Current(set)
	assert.NoError(t, err)
	assert.Equal(t, "s-registered", registered)
}

func TestSpec4_1_ATerminatingSetIsNotInjected(t *testing.T) {
	metrics := newMetrics(prometheus.NewRegistry())
	index := newSetIndex(logr.Discard(), metrics)
	set := selecting("handled", metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
	index.put(set)
	assert.Equal(t, []string{"handled"}, found(index, set.Spec.Selector.MatchLabels))

	deleted := set.DeepCopy()
	deleted.DeletionTimestamp, deleted.Finalizers = new(metav1.Now()), []string{"a/b"}
	index.put(deleted)
	assert.Empty(t, found(index, set.Spec.Selector.MatchLabels), "a finalizer keeps it")
	index.put(selecting("handled", *set.Spec.Selector))
	assert.Equal(t, []string{"handled"}, found(index, set.Spec.Selector.MatchLabels), "it was recreated")
}
