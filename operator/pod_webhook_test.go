package operator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/kube"
)

func TestPodsOfExcludedNamespacesLackNoSidecars(t *testing.T) {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: kube.WebhookConfigurationName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "sets"}, {
			Name: kube.PodWebhookName,
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-flannel"}},
			}},
		}},
	}
	reads, forbidden := 0, true
	live := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(configuration).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			reads++
			if forbidden {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, key.Name, nil)
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	w := &podWebhook{live: live, namespace: "kruise-system", clock: clock}
	called := func(namespace string) bool {
		return w.called(t.Context()).Namespace(namespace, map[string]string{corev1.LabelMetadataName: namespace})
	}
	assert.True(t, called("kube-flannel"), "an older ClusterRole does not let the operator know")
	assert.False(t, called("kruise-system"))

	forbidden = false
	clock.SetTime(clock.Now().Add(webhookInterval))
	assert.False(t, called("kube-flannel"))
	assert.True(t, called("web"))
	assert.Equal(t, 2, reads, "at most one read in a minute")
	selection := w.selection(t.Context())

	require.NoError(t, live.Delete(t.Context(), configuration))
	clock.SetTime(clock.Now().Add(webhookInterval))
	assert.True(t, called("kube-flannel"))
	assert.Greater(t, w.selection(t.Context()), selection)
}
