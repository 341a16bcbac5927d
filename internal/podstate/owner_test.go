package podstate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAPodIsRecreatedByItsOwner(t *testing.T) {
	for owner, want := range map[string]string{
		"ReplicaSet/web-5d6":   "Deployment/web",
		"ReplicaSet/other-7f9": "ReplicaSet/other-7f9",
		"StatefulSet/db":       "StatefulSet/db",
		"CloneSet/clones":      "CloneSet/clones",
		"":                     "/",
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Labels: map[string]string{"pod-template-hash": "5d6"}}}
		if kind, name, ok := strings.Cut(owner, "/"); ok {
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
		}
		kind, name := Owner(pod)
		assert.Equal(t, want, kind+"/"+name)
		assert.Equal(t, owner != "", Controlled(pod), owner)
	}
}
