package crd

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// installed is a client of a cluster in which the webhook of a Service converts SidecarSets. asked records the
// deletions and patches.
type installed struct {
	client.Client
	asked []string
}

func newInstalled(t *testing.T, service string) *installed {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: Name}}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{Namespace: "system", Name: service}},
	}}
	in := &installed{}
	in.Client = fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(
		definition,
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "outrigger"}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "outrigger"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "outrigger-webhook"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "others"}},
	).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			in.asked = append(in.asked, "delete "+object.GetObjectKind().GroupVersionKind().Kind+" "+object.GetName())
			return c.Delete(ctx, object, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			in.asked = append(in.asked, "patch "+object.GetName())
			return c.Patch(ctx, object, patch, options...)
		},
	}).Build()
	return in
}

func (in *installed) uninstall(t *testing.T) {
	t.Helper()
	require.NoError(t, Uninstallation{Client: in, SystemNamespace: "system", Out: io.Discard}.Run(t.Context()))
}

func (in *installed) strategy(t *testing.T) apiextensionsv1.ConversionStrategyType {
	t.Helper()
	definition, err := Get(t.Context(), in)
	require.NoError(t, err)
	return definition.Spec.Conversion.Strategy
}

// The webhook configurations are deleted before the Deployments, and the conversion is suspended after the
// deletion of the Deployments.
func TestUninstallationEndsCallersFirst(t *testing.T) {
	in := newInstalled(t, "outrigger-webhook")
	in.uninstall(t)
	assert.Equal(t, []string{
		"delete ValidatingWebhookConfiguration outrigger", "delete MutatingWebhookConfiguration outrigger",
		"delete Deployment outrigger-operator", "delete Deployment outrigger-worker", "delete Deployment outrigger-webhook",
		"patch " + Name,
	}, in.asked)
	assert.Equal(t, apiextensionsv1.NoneConverter, in.strategy(t))
	require.NoError(t, in.Get(t.Context(), client.ObjectKey{Namespace: "system", Name: "others"}, &appsv1.Deployment{}))
	in.uninstall(t) // a missing object is not an error
}

func TestUninstallationLeavesTheConversionOfOthers(t *testing.T) {
	in := newInstalled(t, "kruise-webhook-service")
	in.uninstall(t)
	assert.Equal(t, apiextensionsv1.WebhookConverter, in.strategy(t))
}

func TestUninstallationOfNothing(t *testing.T) {
	in := newInstalled(t, "outrigger-webhook")
	require.NoError(t, in.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: Name}}))
	in.uninstall(t)
}

// A pod on a node that does not respond is never deleted, so the foreground deletion of its Deployment does not
// complete.
func TestUninstallationSuspendsTheConversionAlthoughADeploymentIsNotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInstalled(t, "outrigger-webhook")
		webhook := &appsv1.Deployment{}
		require.NoError(t, in.Get(t.Context(), client.ObjectKey{Namespace: "system", Name: "outrigger-webhook"}, webhook))
		webhook.Finalizers = []string{metav1.FinalizerDeleteDependents}
		require.NoError(t, in.Update(t.Context(), webhook))
		in.uninstall(t)
		assert.Equal(t, apiextensionsv1.NoneConverter, in.strategy(t))
	})
}

// The webhook configurations are cluster-scoped, so a mistyped namespace would remove the webhook of the installation.
func TestUninstallationOfAnotherNamespaceDeletesNothing(t *testing.T) {
	in := newInstalled(t, "outrigger-webhook")
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	require.NoError(t, in.Get(t.Context(), client.ObjectKey{Name: "outrigger"}, configuration))
	configuration.Webhooks = []admissionregistrationv1.MutatingWebhook{{
		Name: "pods.outrigger.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: "system", Name: "outrigger-webhook"},
		},
	}}
	require.NoError(t, in.Update(t.Context(), configuration))
	err := Uninstallation{Client: in, SystemNamespace: "systems", Out: io.Discard}.Run(t.Context())
	require.EqualError(t, err, "nothing is removed, because the API server calls the webhook of namespace system and not of systems; to uninstall that installation, use --namespace=system; to remove only a Helm release, use helm uninstall --no-hooks")
	assert.Empty(t, in.asked)
	in.uninstall(t)
}

func TestUninstallationNamesMissingObjects(t *testing.T) {
	in := newInstalled(t, "outrigger-webhook")
	var out strings.Builder
	require.NoError(t, Uninstallation{Client: in, SystemNamespace: "system", Out: &out}.Run(t.Context()))
	assert.Contains(t, out.String(), "Deployment outrigger-worker does not exist in namespace system\n")
	assert.Contains(t, out.String(), "Deployment outrigger-webhook is deleted\n")
}
