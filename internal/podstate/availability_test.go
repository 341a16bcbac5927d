package podstate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

const (
	ofOurs  = `"lastContainerStatuses":{"side":{"imageID":"id-1","restartCount":4}}`
	ofPeers = `"lastContainerStatuses":{"side":{"imageID":"id-1"}}`
)

// crashed returns a pod that runs the image of the upgrade and is not ready.
func crashed(state string) *corev1.Pod {
	return upgraded(func(p *corev1.Pod, s *corev1.ContainerStatus) {
		p.Annotations[v1alpha1.InPlaceUpdateStateAnnotation] = `{"s":{"revision":"new",` + state + `}}`
		if state == "" {
			delete(p.Annotations, v1alpha1.InPlaceUpdateStateAnnotation)
		}
		p.Status.Conditions[0].Status = corev1.ConditionFalse
		s.Image, s.ImageID, s.RestartCount = "side:v2", "id-2", 5
	})
}

func TestSpec7_5_PodsWhoseContentWasRecordedDoNotCount(t *testing.T) {
	end := func(hash, version string) []v1alpha1.GoodRevision {
		return []v1alpha1.GoodRevision{{Hash: "newest", ResourceVersion: "90"}, {Hash: hash, ResourceVersion: version}}
	}
	for name, c := range map[string]struct {
		state string
		good  []v1alpha1.GoodRevision
		want  bool
	}{
		"nothing recorded":                           {`"sidecarSetVersion":"7",` + ofOurs, nil, false},
		"of other content":                           {`"sidecarSetVersion":"7",` + ofOurs, end("other", "8"), false},
		"upgraded before the end":                    {`"sidecarSetVersion":"7",` + ofOurs, end("new", "8"), true},
		"numbers, not texts":                         {`"sidecarSetVersion":"99",` + ofOurs, end("new", "100"), true},
		"upgraded for the set that the end is of":    {`"sidecarSetVersion":"8",` + ofOurs, end("new", "8"), true},
		"upgraded to it again since":                 {`"sidecarSetVersion":"9",` + ofOurs, end("new", "8"), false},
		"damaged":                                    {`"sidecarSetVersion":"x",` + ofOurs, end("new", "8"), false},
		"upgraded by OpenKruise":                     {ofPeers, end("new", "8"), true},
		"created with it":                            {"", end("new", "8"), true},
		"taken over":                                 {ofPeers, end("new", ""), true},
		"taken over, created with it":                {"", end("new", ""), true},
		"taken over, but upgraded by an Outrigger":   {ofOurs, end("new", ""), false},
		"taken over, but upgraded by this Outrigger": {`"sidecarSetVersion":"7",` + ofOurs, end("new", ""), false},
	} {
		v := version()
		v.Good = c.good
		got, err := v.Of(crashed(c.state))
		require.NoError(t, err)
		assert.Equal(t, c.want, got.RolloutEnded, name)
		assert.Equal(t, !c.want, got.UnavailableByUpgrade(), name)
		assert.Equal(t, !c.want, got.Available(crashed(c.state)), "%s: as a candidate it costs nothing", name)
	}
}

// The pod waits until the end of the rollout of its content is recorded.
func TestSpec7_2_PodsWhoseContentWasRecordedDoNotWait(t *testing.T) {
	v := version()
	v.Hash, v.Good = "newer", []v1alpha1.GoodRevision{{Hash: "new"}}
	pod := upgraded(func(*corev1.Pod, *corev1.ContainerStatus) {})
	got, err := v.Of(pod)
	require.NoError(t, err)
	assert.False(t, got.Waits())
	v.Good = nil
	got, err = v.Of(pod)
	require.NoError(t, err)
	assert.True(t, got.Waits())
}

// The kubelet writes the first Ready condition after the pod is scheduled to its node.
func TestSpec7_5_PodsThatWereUnscheduledWhenUpgradedCostNothingUntilTheyHaveBeenReady(t *testing.T) {
	taken := time.Date(2024, 1, 2, 13, 0, 0, 0, time.UTC)
	condition := func(status corev1.ConditionStatus, after time.Duration) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(taken.Add(after))}}
	}
	for name, c := range map[string]struct {
		conditions []corev1.PodCondition
		taken      bool
		want       bool
	}{
		"unscheduled":                      {nil, false, true},
		"no kubelet has answered":          {condition(corev1.ConditionFalse, 0), false, true},
		"scheduled to a kubelet":           {condition(corev1.ConditionFalse, 0), true, true},
		"across a second":                  {condition(corev1.ConditionFalse, time.Second), true, true},
		"ready":                            {condition(corev1.ConditionTrue, 9*time.Second), true, false},
		"was ready, and is not any longer": {condition(corev1.ConditionFalse, 20*time.Second), true, false},
	} {
		got, err := version().Of(upgraded(func(p *corev1.Pod, s *corev1.ContainerStatus) {
			p.Annotations[v1alpha1.UnavailableSinceAnnotation] = `{"s":null}`
			p.Status.Phase, p.Status.Conditions = corev1.PodRunning, c.conditions
			if c.taken {
				p.Status.StartTime = new(metav1.NewTime(taken))
			}
			s.ImageID = "id-2"
		}))
		require.NoError(t, err)
		assert.Equal(t, c.want, got.UnavailableBefore, name)
	}
}
