package fallback

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestTheCacheIsReadUnlessItMayBeStale(t *testing.T) {
	holding := func(name string, list interceptor.Funcs) client.Reader {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		return fake.NewClientBuilder().WithObjects(pod).WithInterceptorFuncs(list).Build()
	}
	bounded := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		_, bounded := ctx.Deadline()
		assert.True(t, bounded)
		return c.List(ctx, list, options...)
	}}
	var stale error
	reader := Reader{Cached: holding("cached", interceptor.Funcs{}), Live: holding("live", bounded), Stale: func() error { return stale }}
	var pods corev1.PodList
	require.NoError(t, reader.List(t.Context(), &pods))
	assert.Equal(t, "cached", pods.Items[0].Name)
	stale = errors.New("the watch is down")
	require.NoError(t, reader.List(t.Context(), &pods))
	assert.Equal(t, "live", pods.Items[0].Name)
}
