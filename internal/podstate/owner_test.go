package podstate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAPodIsRecreatedByItsOwner(t *testing.T) {
	for want, owner := range map[string]string{
		"kubectl rollout restart deployment/web -n shop": "ReplicaSet/web-5d6",
		"kubectl rollout restart statefulset/db -n shop": "StatefulSet/db",
		"kubectl rollout restart daemonset/node -n shop": "DaemonSet/node",
		"kubectl delete pod p -n shop":                   "CloneSet/clones",
		"":                                               "",
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: map[string]string{"pod-template-hash": "5d6"}}}
		if kind, name, ok := strings.Cut(owner, "/"); ok {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
		}
		assert.Equal(t, want, RecreateCommand(pod), owner)
	}
}
