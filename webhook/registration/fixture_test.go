package registration

import (
	"bytes"
	"context"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	manifests "github.com/outrigger/outrigger/config/webhook"
	"github.com/outrigger/outrigger/kube"
)

// fixture is a store for several replicas, and a clock.
type fixture struct {
	t     *testing.T
	store client.Client
	now   time.Time
}

func newFixture(t *testing.T) *fixture {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	require.NoError(t, admissionregistrationv1.AddToScheme(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "sidecarsets.apps.kruise.io"}}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	return &fixture{t: t, store: fake.NewClientBuilder().WithScheme(scheme).WithObjects(definition).Build(), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// install applies config/webhook, with url in place of the Service if url is not empty.
func (r *fixture) install(url string) {
	r.t.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests.Manifests), len(manifests.Manifests))
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(r.t, documents.Decode(mutating))
	require.NoError(r.t, documents.Decode(validating))
	for _, h := range append(hooksOf(mutating), hooksOf(validating)...) {
		if url != "" {
			h.client.URL, h.client.Service = new(url+*h.client.Service.Path), nil
		}
	}
	require.NoError(r.t, r.store.Create(r.t.Context(), mutating, client.FieldOwner("kubectl")))
	require.NoError(r.t, r.store.Create(r.t.Context(), validating, client.FieldOwner("kubectl")))
}

func installedFixture(t *testing.T) *fixture {
	r := newFixture(t)
	r.install("")
	return r
}

func (r *fixture) replica(url string) *Reconciler {
	replica, err := New(Options{SystemNamespace: "system", URL: url, ServiceName: "hook"})
	require.NoError(r.t, err)
	replica.client, replica.live, replica.now = r.store, r.store, func() time.Time { return r.now }
	replica.endpointDelay, replica.watchDown = 0, func() time.Duration { return 0 }
	replica.reachable = func(context.Context) (bool, error) { return replica.serving.Load() != nil, nil }
	return replica
}

// step reconciles once, and checks that the registration trusts the serving certificate.
func (r *fixture) step(replica *Reconciler) {
	r.t.Helper()
	_, err := replica.Reconcile(r.t.Context(), reconcile.Request{})
	require.NoError(r.t, err)
	r.trusted(replica)
}

// start reconciles until all replicas serve.
func (r *fixture) start(replicas ...*Reconciler) {
	r.t.Helper()
	for range 4 {
		for _, replica := range replicas {
			r.step(replica)
		}
		r.now = r.now.Add(watchRestartTimeout)
	}
	for _, replica := range replicas {
		require.NotNil(r.t, replica.serving.Load())
	}
}

func (r *fixture) trusted(replica *Reconciler) {
	r.t.Helper()
	pair, err := replica.Certificate(nil)
	if err != nil {
		return
	}
	seen, err := replica.read(r.t.Context())
	require.NoError(r.t, err)
	if !seen.callsPodWebhook() {
		return
	}
	bundles := map[string][]byte{"conversion": r.conversion().ClientConfig.CABundle}
	for _, hook := range r.mutating().Webhooks {
		bundles[hook.Name] = hook.ClientConfig.CABundle
	}
	intermediates := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		intermediate, err := x509.ParseCertificate(der)
		require.NoError(r.t, err)
		intermediates.AddCert(intermediate)
	}
	for name, bundle := range bundles {
		roots := x509.NewCertPool()
		require.True(r.t, roots.AppendCertsFromPEM(bundle))
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, CurrentTime: r.now, DNSName: "hook.system.svc"})
		require.NoError(r.t, err, name)
	}
}

func (r *fixture) conversion() *apiextensionsv1.WebhookConversion {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(r.t, r.store.Get(r.t.Context(), client.ObjectKey{Name: definitionName}, definition))
	return definition.Spec.Conversion.Webhook
}

func (r *fixture) mutating() *admissionregistrationv1.MutatingWebhookConfiguration {
	live := &admissionregistrationv1.MutatingWebhookConfiguration{}
	require.NoError(r.t, r.store.Get(r.t.Context(), client.ObjectKey{Name: configurationName}, live))
	return live
}

func (r *fixture) secret() *corev1.Secret {
	secret := &corev1.Secret{}
	require.NoError(r.t, r.store.Get(r.t.Context(), client.ObjectKey{Namespace: "system", Name: certificateSecret}, secret))
	return secret
}
