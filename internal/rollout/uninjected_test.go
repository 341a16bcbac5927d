package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/match"
)

// The cache shows the deletion of a namespace before the deletion of its pods.
func TestPodsOfARemovedNamespaceDoNotHideOtherPods(t *testing.T) {
	set := fixture.SidecarSet("logs", fixture.Sidecar("side"))
	var pods []*corev1.Pod
	for _, namespace := range []string{"removed", "shop", "removed"} {
		pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: set.Spec.Selector.MatchLabels}})
	}
	found, err := Uninjected(set, pods, match.NewWebhook(nil, "system"), func(name string) (map[string]string, error) {
		if name == "removed" {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
		}
		return nil, nil
	})
	assert.True(t, apierrors.IsNotFound(err))
	assert.ErrorContains(t, err, "look up namespace removed")
	assert.Equal(t, pods[1:2], found)
}
