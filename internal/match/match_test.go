package match

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestSpec3_SelectorsDecide(t *testing.T) {
	web := map[string]string{"app": "web"}
	for name, c := range map[string]struct {
		selector *metav1.LabelSelector
		labels   map[string]string
		want     bool
	}{
		"match":                         {&metav1.LabelSelector{MatchLabels: web}, map[string]string{"app": "web", "x": "y"}, true},
		"no match":                      {&metav1.LabelSelector{MatchLabels: web}, map[string]string{"app": "db"}, false},
		"missing selector: nothing":     {nil, web, false},
		"empty selector: nothing":       {&metav1.LabelSelector{}, web, false},
		"empty selector: not even that": {&metav1.LabelSelector{}, nil, false},
		"expression": {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"db"}},
		}}, web, true},
	} {
		scope, err := NewScope(&v1alpha1.SidecarSetSpec{Selector: c.selector})
		require.NoError(t, err, name)
		assert.Equal(t, c.want, scope.Labels(c.labels), name)
	}
}

func TestSpec3_NamespacesDecide(t *testing.T) {
	for name, c := range map[string]struct {
		spec      v1alpha1.SidecarSetSpec
		namespace string
		labels    map[string]string
		want      bool
	}{
		"all":               {v1alpha1.SidecarSetSpec{}, "any", nil, true},
		"the one":           {v1alpha1.SidecarSetSpec{Namespace: "a"}, "a", nil, true},
		"not the one":       {v1alpha1.SidecarSetSpec{Namespace: "a"}, "b", nil, false},
		"by label":          {v1alpha1.SidecarSetSpec{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}, "a", map[string]string{"tier": "web"}, true},
		"label missing":     {v1alpha1.SidecarSetSpec{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}, "a", nil, false},
		"both, one differs": {v1alpha1.SidecarSetSpec{Namespace: "b", NamespaceSelector: &metav1.LabelSelector{}}, "a", nil, false},
	} {
		scope, err := NewScope(&c.spec)
		require.NoError(t, err, name)
		assert.Equal(t, c.spec.NamespaceSelector != nil, scope.NeedsNamespaceLabels(), name)
		assert.Equal(t, c.want, scope.Namespace(c.namespace, c.labels), name)
	}
}

func TestSpec4_13_TheWebhookIsNotCalledForCriticalPodsOfKubeSystem(t *testing.T) {
	pod := func(namespace, class string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: corev1.PodSpec{PriorityClassName: class}}
	}
	assert.True(t, Critical(pod("kube-system", "system-node-critical")))
	assert.True(t, Critical(pod("kube-system", "system-cluster-critical")), "konnectivity agents, cloud controllers")
	assert.False(t, Critical(pod("kube-system", "")))
	assert.False(t, Critical(pod("web", "system-node-critical")))
}

func TestScopesCoverNoPodsThatTheWebhookDoesNotSee(t *testing.T) {
	web := v1alpha1.SidecarSetSpec{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}
	for name, c := range map[string]struct {
		spec      v1alpha1.SidecarSetSpec
		namespace string
		labels    map[string]string
		want      bool
	}{
		"any":                  {v1alpha1.SidecarSetSpec{}, "a", nil, true},
		"opted out":            {v1alpha1.SidecarSetSpec{}, "a", map[string]string{v1alpha1.InjectionLabel: v1alpha1.InjectionDisabled}, false},
		"another value":        {v1alpha1.SidecarSetSpec{}, "a", map[string]string{v1alpha1.InjectionLabel: "yes"}, true},
		"the system namespace": {v1alpha1.SidecarSetSpec{}, "kruise-system", nil, false},
		"in scope":             {web, "a", map[string]string{"tier": "web"}, true},
		"out of scope":         {web, "a", nil, false},
		"in scope, opted out":  {web, "a", map[string]string{"tier": "web", v1alpha1.InjectionLabel: v1alpha1.InjectionDisabled}, false},
	} {
		scope, err := NewScope(&c.spec)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, scope.Covers(c.namespace, c.labels, "kruise-system"), name)
	}
}

func TestSpec3_BadSelectorsNameTheirField(t *testing.T) {
	bad := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Near"}}}
	_, err := NewScope(&v1alpha1.SidecarSetSpec{Selector: bad})
	require.ErrorContains(t, err, "spec.selector: ")
	_, err = NewScope(&v1alpha1.SidecarSetSpec{NamespaceSelector: bad})
	require.ErrorContains(t, err, "spec.namespaceSelector: ")
}

func TestSpec3_EndedTerminatingAndMirrorPodsAreNotActive(t *testing.T) {
	now := metav1.Now()
	for phase, want := range map[corev1.PodPhase]bool{"": true, corev1.PodPending: true, corev1.PodRunning: true, corev1.PodUnknown: true, corev1.PodSucceeded: false, corev1.PodFailed: false} {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		assert.Equal(t, want, Active(pod), phase)
		mirror := pod.DeepCopy()
		mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
		assert.False(t, Active(mirror), phase)
		pod.DeletionTimestamp = &now
		assert.False(t, Active(pod), phase)
	}
}

func TestSpec3_OfAnUnreadableSelectorEveryReadableRequirementHolds(t *testing.T) {
	unreadable := metav1.LabelSelectorRequirement{Key: "tier", Operator: "Is", Values: []string{"a"}}
	scope, err := NewScope(&v1alpha1.SidecarSetSpec{
		Selector: &metav1.LabelSelector{
			MatchLabels:      map[string]string{"app": "web", "b a d": "x"},
			MatchExpressions: []metav1.LabelSelectorRequirement{unreadable, {Key: "off", Operator: metav1.LabelSelectorOpDoesNotExist}},
		},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}, MatchExpressions: []metav1.LabelSelectorRequirement{unreadable}},
	})
	require.ErrorContains(t, err, "spec.selector: ")
	require.ErrorContains(t, err, "spec.namespaceSelector: ")
	assert.True(t, scope.Labels(map[string]string{"app": "web"}))
	assert.False(t, scope.Labels(map[string]string{"app": "db"}))
	assert.False(t, scope.Labels(map[string]string{"app": "web", "off": ""}))
	assert.True(t, scope.Namespace("n", map[string]string{"env": "prod"}))
	assert.False(t, scope.Namespace("n", nil))

	scope, err = NewScope(&v1alpha1.SidecarSetSpec{
		Namespace: "n", Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{unreadable}},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{unreadable}},
	})
	require.Error(t, err)
	assert.True(t, scope.Labels(nil), "anything, where nothing can be read")
	assert.False(t, scope.NeedsNamespaceLabels())
	assert.True(t, scope.Namespace("n", nil))
	assert.False(t, scope.Namespace("m", nil))
}
