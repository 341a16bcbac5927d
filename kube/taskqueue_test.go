package kube

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestTaskQueueIsTheClustersUnlessNamed(t *testing.T) {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "cluster-uid"}}
	cluster := fake.NewClientBuilder().WithObjects(system).Build()
	empty := fake.NewClientBuilder().Build()

	queue, err := TaskQueue(t.Context(), cluster, "")
	require.NoError(t, err)
	assert.Equal(t, "cluster-uid", queue)

	queue, err = TaskQueue(t.Context(), empty, "mine")
	require.NoError(t, err)
	assert.Equal(t, "mine", queue)

	_, err = TaskQueue(t.Context(), empty, "")
	assert.ErrorContains(t, err, "--task-queue")
}
