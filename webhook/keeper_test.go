package webhook

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/kube"
)

// rig is a store with replicas at it, and a clock.
type rig struct {
	t     *testing.T
	store client.Client
	now   time.Time
}

func newRig(t *testing.T) *rig {
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	require.NoError(t, admissionregistrationv1.AddToScheme(scheme))
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "sidecarsets.apps.kruise.io"}}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	return &rig{t: t, store: fake.NewClientBuilder().WithScheme(scheme).WithObjects(definition).Build(), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
}

func (r *rig) replica(url string) *keeper {
	options := Options{Options: kube.Options{SystemNamespace: "system"}, URL: url, ServiceName: "hook"}
	k, err := options.newKeeper()
	require.NoError(r.t, err)
	k.client, k.now = r.store, func() time.Time { return r.now }
	return k
}

// step reconciles once; what is served then is trusted by what the API server
// was told.
func (r *rig) step(k *keeper) {
	r.t.Helper()
	_, err := k.Reconcile(r.t.Context(), reconcile.Request{})
	require.NoError(r.t, err)
	r.trusted(k)
}

// start takes replicas to where they serve.
func (r *rig) start(replicas ...*keeper) {
	r.t.Helper()
	for range 4 {
		for _, k := range replicas {
			r.step(k)
		}
		r.now = r.now.Add(watchGap)
	}
	for _, k := range replicas {
		require.NotNil(r.t, k.serving.Load())
	}
}

func (r *rig) trusted(k *keeper) {
	r.t.Helper()
	pair, err := k.certificate(nil)
	if err != nil {
		return
	}
	bundles := map[string][]byte{"conversion": r.conversion().ClientConfig.CABundle}
	for _, hook := range r.mutating().Webhooks {
		bundles[hook.Name] = hook.ClientConfig.CABundle
	}
	for name, bundle := range bundles {
		roots := x509.NewCertPool()
		require.True(r.t, roots.AppendCertsFromPEM(bundle))
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: r.now, DNSName: "hook.system.svc"})
		require.NoError(r.t, err, name)
	}
}

func (r *rig) conversion() *apiextensionsv1.WebhookConversion {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(r.t, r.store.Get(r.t.Context(), definitionKey(), definition))
	return definition.Spec.Conversion.Webhook
}

func (r *rig) mutating() *admissionregistrationv1.MutatingWebhookConfiguration {
	live := &admissionregistrationv1.MutatingWebhookConfiguration{}
	require.NoError(r.t, r.store.Get(r.t.Context(), client.ObjectKey{Name: configurationName}, live))
	return live
}

func (r *rig) secret() *corev1.Secret {
	secret := &corev1.Secret{}
	require.NoError(r.t, r.store.Get(r.t.Context(), client.ObjectKey{Namespace: "system", Name: certificateSecret}, secret))
	return secret
}

func TestTheFirstStepsMakeACertificateAndTellTheAPIServer(t *testing.T) {
	r := newRig(t)
	k := r.replica("https://localhost:9443/base/")
	_, err := k.certificate(nil)
	require.ErrorIs(t, err, errNoCertificate)
	r.step(k)
	r.start(k)
	<-k.first
	pair, err := k.certificate(nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"localhost", "hook.system.svc"}, pair.Leaf.DNSNames)
	assert.Equal(t, corev1.SecretTypeTLS, r.secret().Type)
	assert.NotContains(t, r.secret().Data, "ca.key")
	hook := r.mutating().Webhooks[0]
	assert.Equal(t, "https://localhost:9443/base/mutate-pod", *hook.ClientConfig.URL)
	assert.Nil(t, hook.ClientConfig.Service)
	assert.Equal(t, []string{"system"}, hook.NamespaceSelector.MatchExpressions[0].Values)
	assert.Equal(t, "https://localhost:9443/base/convert", *r.conversion().ClientConfig.URL)
	assert.Nil(t, r.conversion().ClientConfig.Service)

	before := r.mutating().ResourceVersion + r.secret().ResourceVersion
	r.step(k)
	assert.Equal(t, before, r.mutating().ResourceVersion+r.secret().ResourceVersion, "in step, nothing is written")
}

func TestPodsAreAskedAboutOnlyOnceSetsCanBeSeenAgain(t *testing.T) {
	r := newRig(t)
	writer, other := r.replica(""), r.replica("")
	for range 2 {
		r.step(writer)
	}
	require.NotNil(t, r.conversion())
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	at := client.ObjectKey{Name: configurationName}
	assert.True(t, apierrors.IsNotFound(r.store.Get(t.Context(), at, configuration)), "the definition was changed just now")
	r.now = r.now.Add(time.Second)
	r.step(writer)
	assert.True(t, apierrors.IsNotFound(r.store.Get(t.Context(), at, configuration)), "the watch is the one before")
	writer.sets.asked.Store(&r.now)
	r.step(writer)
	require.NoError(t, r.store.Get(t.Context(), at, configuration))
	r.step(other)
	assert.NotNil(t, other.serving.Load(), "a replica that finds all in place need not wait")
}

func TestRenewalIsSeamlessForAllReplicas(t *testing.T) {
	r := newRig(t)
	a, b := r.replica(""), r.replica("")
	r.start(a, b)
	first := a.serving.Load().Leaf
	require.True(t, first.Equal(b.serving.Load().Leaf), "replicas share one certificate")
	assert.Equal(t, "hook", r.mutating().Webhooks[0].ClientConfig.Service.Name)
	assert.Equal(t, "hook", r.conversion().ClientConfig.Service.Name)

	r.now = first.NotAfter.Add(-renewBefore - time.Minute)
	r.step(a)
	assert.True(t, first.Equal(a.serving.Load().Leaf), "too early")

	r.now = first.NotAfter.Add(-renewBefore + time.Minute)
	r.step(a) // makes the new certificate
	r.step(b) // tells the API server
	assert.True(t, first.Equal(b.serving.Load().Leaf), "other API servers may not have heard yet")
	r.now = r.now.Add(spreadTime)
	r.step(b) // serves it
	r.trusted(a)
	second := b.serving.Load().Leaf
	assert.False(t, first.Equal(second))
	assert.True(t, first.Equal(a.serving.Load().Leaf), "a still serves the one before")
	r.step(a)
	r.now = r.now.Add(spreadTime)
	r.step(a)
	assert.True(t, second.Equal(a.serving.Load().Leaf))

	r.now = first.NotAfter.Add(time.Minute)
	r.step(a)
	assert.Equal(t, r.secret().Data[caKey], r.mutating().Webhooks[0].ClientConfig.CABundle, "an expired CA is dropped")
}

func TestWhatIsServedStaysTrustedWhenTheSecretIsLost(t *testing.T) {
	for name, lose := range map[string]func(*rig){
		"deleted": func(r *rig) { require.NoError(r.t, r.store.Delete(r.t.Context(), r.secret())) },
		"emptied": func(r *rig) {
			secret := r.secret()
			secret.Data = nil
			require.NoError(r.t, r.store.Update(r.t.Context(), secret))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			k := r.replica("")
			r.start(k)
			first := k.serving.Load().Leaf
			lose(r)
			r.step(k) // makes another certificate
			r.step(k) // tells the API server
			assert.True(t, first.Equal(k.serving.Load().Leaf))
			r.now = r.now.Add(spreadTime)
			r.step(k)
			assert.False(t, first.Equal(k.serving.Load().Leaf))
		})
	}
}

func serve(t *testing.T, k *keeper, secret *corev1.Secret) {
	t.Helper()
	_, err := k.serve(t.Context(), secret)
	require.NoError(t, err)
}

func TestANewCertificateIsNotServedBeforeItIsTrusted(t *testing.T) {
	r := newRig(t)
	k := r.replica("")
	r.step(k)
	secret := r.secret()
	serve(t, k, secret)
	_, err := k.certificate(nil)
	require.ErrorIs(t, err, errNoCertificate, "without configurations")
	another := k.desired.trusting([]byte("another"))
	require.NoError(t, k.writeConversion(t.Context(), another.conversion))
	require.NoError(t, k.writeConfigurations(t.Context(), another))
	serve(t, k, secret)
	_, err = k.certificate(nil)
	require.ErrorIs(t, err, errNoCertificate, "with configurations that trust another CA")
	require.NoError(t, k.writeConfigurations(t.Context(), k.desired.trusting(secret.Data[caKey])))
	serve(t, k, secret)
	_, err = k.certificate(nil)
	require.ErrorIs(t, err, errNoCertificate, "with a conversion that trusts another CA")
}

func TestACertificateForOtherHostsIsReplaced(t *testing.T) {
	r := newRig(t)
	inCluster := r.replica("")
	r.start(inCluster)
	outside := r.replica("https://dev.example.com:9443")
	r.start(outside)
	assert.Equal(t, []string{"dev.example.com", "hook.system.svc"}, outside.serving.Load().Leaf.DNSNames)
	r.step(inCluster)
	r.now = r.now.Add(spreadTime)
	r.step(inCluster)
	assert.True(t, outside.serving.Load().Leaf.Equal(inCluster.serving.Load().Leaf), "it serves both")
}

func TestURLsThatCannotWorkAreRefused(t *testing.T) {
	for _, url := range []string{"http://localhost:9443", "https://127.0.0.1:9443", "https://[::1]:9443", "localhost:9443", "https://", "%"} {
		_, err := Options{URL: url}.newKeeper()
		require.ErrorContains(t, err, "webhook URL", url)
	}
}
