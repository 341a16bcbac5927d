package cli

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestPodsAreListedPageByPage(t *testing.T) {
	tokens := map[string]string{"": "second", "second": ""}
	reader := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			var asked client.ListOptions
			asked.ApplyOptions(options)
			assert.EqualValues(t, 1, asked.Limit)
			assert.Equal(t, "edge", asked.Namespace)
			pods := list.(*corev1.PodList)
			pods.Items = make([]corev1.Pod, 1)
			pods.Items[0].Name, pods.Continue = "after-"+asked.Continue, tokens[asked.Continue]
			return nil
		},
	}).Build()
	pods, err := listPods(t.Context(), reader, 1, client.InNamespace("edge"))
	require.NoError(t, err)
	require.Len(t, pods, 2)
	assert.Equal(t, []string{"after-", "after-second"}, []string{pods[0].Name, pods[1].Name})
}
