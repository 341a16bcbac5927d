package cli

import (
	"cmp"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// A SidecarSet with a namespaceSelector can match pods of thousands of namespaces.
func TestManyNamespacesAreListed(t *testing.T) {
	for name, forbidden := range map[string]error{"permitted": nil, "forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", nil)} {
		t.Run(name, func(t *testing.T) {
			var namespaces []client.Object
			for i := range 3 * singleNamespaces {
				namespaces = append(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("team-", i), Labels: map[string]string{"team": fmt.Sprint(i)}}})
			}
			gets, lists := 0, 0
			s := newInterceptedCluster(t, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					gets++
					return c.Get(ctx, key, object, options...)
				},
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					lists++
					return cmp.Or(forbidden, c.List(ctx, list, options...))
				},
			}, namespaces...)
			labels := (&cluster{Reader: s.Client}).namespaceLabels(t.Context())
			for range 2 {
				for i := range 3 * singleNamespaces {
					got, err := labels(fmt.Sprint("team-", i))
					require.NoError(t, err)
					assert.Equal(t, fmt.Sprint(i), got["team"])
				}
			}
			_, err := labels("missing")
			require.ErrorContains(t, err, "get namespace missing")
			assert.Equal(t, 1, lists)
			want := singleNamespaces
			if forbidden != nil {
				want = 3 * singleNamespaces
			}
			assert.Equal(t, want+1, gets)
		})
	}
}
