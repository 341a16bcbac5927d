package validation

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
)

func TestSpec5_ALimitThatStopsRolloutsIsWarnedOf(t *testing.T) {
	of := func(limit *intstr.IntOrString, kind v1alpha1.SidecarSetUpdateStrategyType) []string {
		set := fixture.SidecarSet("s", fixture.Sidecar("a"))
		set.Spec.UpdateStrategy.MaxUnavailable, set.Spec.UpdateStrategy.Type = limit, kind
		return Warnings(set)
	}
	want := []string{"spec.updateStrategy.maxUnavailable: with 0, no ready pod is upgraded; raise it to roll out"}
	assert.Equal(t, want, of(new(intstr.FromInt32(0)), ""))
	assert.Equal(t, want, of(new(intstr.FromString("00%")), v1alpha1.RollingUpdateSidecarSetStrategyType))
	assert.Empty(t, of(new(intstr.FromInt32(0)), v1alpha1.NotUpdateSidecarSetStrategyType), "no rollout is wanted")
	assert.Empty(t, of(nil, ""))
	assert.Empty(t, of(new(intstr.FromInt32(10)), ""))
	assert.Empty(t, of(new(intstr.FromString("1%")), ""))
}

func TestSpec5_SelectorsThatNoPodCanMatchAreWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.SidecarSetSpec)
		warns  bool
	}{
		"labels":        {func(*v1alpha1.SidecarSetSpec) {}, false},
		"contradiction": {func(s *v1alpha1.SidecarSetSpec) { s.Selector.MatchExpressions = notIn("app", "web") }, true},
		"other value":   {func(s *v1alpha1.SidecarSetSpec) { s.Selector.MatchExpressions = notIn("app", "db") }, false},
		"namespaces": {func(s *v1alpha1.SidecarSetSpec) {
			s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}, MatchExpressions: notIn("env", "prod", "test")}
		}, true},
	} {
		set := fixture.SidecarSet("s", fixture.Sidecar("a"))
		c.change(&set.Spec)
		assert.Equal(t, c.warns, len(Warnings(set)) == 1, name)
	}
}

func notIn(key string, values ...string) []metav1.LabelSelectorRequirement {
	return []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values}}
}

func TestSpec5_ImagesWithABlankAreWarnedOf(t *testing.T) {
	set := &v1alpha1.SidecarSet{}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Image: "c: v1"}}, {Container: corev1.Container{Image: "c:v1"}}}
	set.Spec.Containers[1].UpgradeStrategy = v1alpha1.SidecarContainerUpgradeStrategy{UpgradeType: v1alpha1.SidecarContainerHotUpgrade, HotUpgradeEmptyImage: "empty: v1"}
	set.Spec.InitContainers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Image: "a b"}}}
	assert.Equal(t, []string{
		`spec.containers[0].image: "c: v1" contains a blank, so no node can pull it; remove the blank`,
		`spec.containers[1].upgradeStrategy.hotUpgradeEmptyImage: "empty: v1" contains a blank, so no node can pull it; remove the blank`,
		`spec.initContainers[0].image: "a b" contains a blank, so no node can pull it; remove the blank`,
	}, Warnings(set))
}

func TestSpec5_32_LongSleepsOfHooksAreWarnedOf(t *testing.T) {
	set := &v1alpha1.SidecarSet{}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	sleep := func(seconds int64) *corev1.Lifecycle {
		return &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}}
	}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Image: "c:v1", Lifecycle: sleep(30)}}, {Container: corev1.Container{Image: "c:v1", Lifecycle: sleep(60)}}}
	assert.Equal(t, []string{"spec.containers[1].lifecycle: a hook sleeps for 60 seconds, so the API server rejects matched pods with a shorter terminationGracePeriodSeconds (30 by default)"}, Warnings(set))
}
