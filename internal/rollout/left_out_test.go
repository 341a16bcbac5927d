package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/internal/podstate"
)

// A pod with the newest hash is not returned, even if the pod lacks a container, because a recreated pod
// would lack the container, too.
func TestSpec3_LeftOutPodsHaveOlderContent(t *testing.T) {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: "side", Image: "side:v1"}}}
	set = fixture.Hashed(set)
	version, err := podstate.NewVersion(set)
	require.NoError(t, err)
	pod := func(name, hashes string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}, Annotations: map[string]string{
			v1alpha1.InjectedListAnnotation: "logs", v1alpha1.HashAnnotation: hashes,
		}}}
	}
	pods := []*corev1.Pod{
		pod("newest", `{"logs":{"hash":"`+version.Hash+`"}}`), pod("older", `{"logs":{"hash":"old"}}`), pod("damaged", "{"),
	}
	found, err := LeftOut(set, version, pods, nil)
	require.NoError(t, err)
	require.Len(t, found, 2)
	assert.Equal(t, "older", found[0].Name)
	require.NoError(t, found[0].Unreadable)
	assert.Equal(t, "damaged", found[1].Name)
	assert.Error(t, found[1].Unreadable)

	set.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
	pods[1].Namespace = "removed"
	found, err = LeftOut(set, version, pods, func(namespace string) (map[string]string, error) {
		if namespace == "removed" {
			return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
		}
		return map[string]string{"team": "a"}, nil
	})
	require.NoError(t, err)
	require.Len(t, found, 1, "a pod in a removed namespace hides no other pod")
	assert.Equal(t, "damaged", found[0].Name)
}
