package registration

import (
	"context"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestTheFirstStepsIssueACertificateAndRegisterIt(t *testing.T) {
	r := newFixture(t)
	r.install("https://localhost:1")
	replica := r.replica("https://localhost:9443/base/")
	_, err := replica.Certificate(nil)
	require.ErrorIs(t, err, errNoCertificate)
	r.step(replica)
	r.start(replica)
	pair, err := replica.Certificate(nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"localhost", "hook.system.svc"}, pair.Leaf.DNSNames)
	assert.Equal(t, x509.ECDSA, pair.Leaf.PublicKeyAlgorithm)
	assert.Equal(t, corev1.SecretTypeTLS, r.secret().Type)
	assert.NotContains(t, r.secret().Data, "ca.key")
	hook := r.mutating().Webhooks[0]
	assert.Equal(t, "https://localhost:9443/base/mutate-pod", *hook.ClientConfig.URL)
	assert.Nil(t, hook.ClientConfig.Service)
	assert.Equal(t, "https://localhost:9443/base/convert", *r.conversion().ClientConfig.URL)
	assert.Nil(t, r.conversion().ClientConfig.Service)
	assert.NoError(t, replica.Registered(nil))

	before := r.mutating().ResourceVersion + r.secret().ResourceVersion
	r.step(replica)
	assert.Equal(t, before, r.mutating().ResourceVersion+r.secret().ResourceVersion, "in step, nothing is written")
}

// The reconciler does not change selectors and timeouts, even if the installer changes these fields or
// installs the configuration again.
func TestOnlyTheCAAndTheRulesOfPodsAreWritten(t *testing.T) {
	r := installedFixture(t)
	shipped := r.mutating()
	replica := r.replica("")
	r.start(replica)
	live := r.mutating()
	for i := range live.Webhooks {
		assert.Equal(t, bundle(r.secret().Data, nil, r.now), live.Webhooks[i].ClientConfig.CABundle)
		live.Webhooks[i].ClientConfig.CABundle = nil
	}
	assert.Empty(t, shipped.Webhooks[0].Rules)
	assert.Equal(t, podRules(), live.Webhooks[0].Rules)
	live.Webhooks[0].Rules = nil
	for i := range live.Webhooks {
		// The fake store drops fields that are always written, even if they are empty.
		live.Webhooks[i].SideEffects, live.Webhooks[i].AdmissionReviewVersions = shipped.Webhooks[i].SideEffects, shipped.Webhooks[i].AdmissionReviewVersions
	}
	assert.Equal(t, shipped.Webhooks, live.Webhooks)

	live = r.mutating()
	live.Webhooks[0].TimeoutSeconds = new(int32(3))
	live.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"mine": "yes"}}
	live.Webhooks[0].ClientConfig.CABundle = []byte("theirs")
	require.NoError(t, r.store.Update(t.Context(), live))
	r.step(replica)
	changed := r.mutating().Webhooks[0]
	assert.Equal(t, int32(3), *changed.TimeoutSeconds)
	assert.Equal(t, "yes", changed.ObjectSelector.MatchLabels["mine"])
	assert.Equal(t, bundle(r.secret().Data, nil, r.now), changed.ClientConfig.CABundle)

	require.NoError(t, r.store.Delete(t.Context(), r.mutating()))
	_, err := replica.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	require.Error(t, replica.Registered(nil))
	assert.True(t, apierrors.IsNotFound(r.store.Get(t.Context(), client.ObjectKey{Name: configurationName}, &admissionregistrationv1.MutatingWebhookConfiguration{})), "it creates none")
	shipped.ResourceVersion = ""
	shipped.ManagedFields = nil
	require.NoError(t, r.store.Create(t.Context(), shipped))
	r.step(replica)
	assert.NotEmpty(t, r.mutating().Webhooks[0].Rules)
}

func TestAWebhookWithAnotherKindOfAddressIsAnErrorWithARemedy(t *testing.T) {
	for installed, own := range map[string]string{"": "https://localhost:9443", "https://localhost:9443": ""} {
		r := newFixture(t)
		r.install(installed)
		replica := r.replica(own)
		var err error
		for range 10 {
			if _, err = replica.Reconcile(t.Context(), reconcile.Request{}); err != nil {
				break
			}
			r.now = r.now.Add(watchRestartTimeout)
		}
		require.ErrorContains(t, err, "delete the configuration and")
	}
}

// The webhook is activated only after a replica is ready and nodes have had time to route to the replica.
func TestTheWebhookIsActivatedAfterAReplicaIsReachable(t *testing.T) {
	r := installedFixture(t)
	replica := r.replica("")
	answers := false
	replica.reachable, replica.endpointDelay = func(context.Context) (bool, error) { return answers, nil }, time.Second
	unregistered := func(why string) {
		t.Helper()
		for range 3 {
			r.step(replica)
			require.Empty(t, r.mutating().Webhooks[0].Rules, why)
			require.Empty(t, r.mutating().Webhooks[1].ClientConfig.CABundle, why)
		}
	}
	unregistered("no replica is ready")
	require.NotNil(t, replica.serving.Load(), "it has to answer to become ready")
	r.now = r.now.Add(time.Minute)
	unregistered("no replica is ready")
	answers = true
	unregistered("the nodes do not route to the endpoint yet")
	answers = false
	unregistered("no endpoint is ready")
	r.now = r.now.Add(time.Minute)
	answers = true
	unregistered("the delay starts again")
	r.now = r.now.Add(time.Second)
	r.step(replica)
	r.now = r.now.Add(watchRestartTimeout)
	r.step(replica)
	require.NotEmpty(t, r.mutating().Webhooks[0].Rules)
	answers = false
	r.step(replica)
	require.NotEmpty(t, r.mutating().Webhooks[0].Rules, "an active webhook stays active: rejected pods are better than pods without sidecars")
}

func TestTheWebhookIsActivatedAfterTheWatchOfSidecarSetsHasRestarted(t *testing.T) {
	r := installedFixture(t)
	writer, other := r.replica(""), r.replica("")
	down := time.Minute // since before the definition was changed
	writer.watchDown = func() time.Duration { return down }
	for range 2 {
		r.step(writer)
	}
	require.NotNil(t, r.conversion())
	assert.Empty(t, r.mutating().Webhooks[0].Rules, "the definition was changed just now")
	down = 0
	r.now = r.now.Add(time.Second)
	r.step(writer)
	assert.Empty(t, r.mutating().Webhooks[0].Rules, "the API server has not ended the watch yet")
	down = 100 * time.Millisecond
	r.step(writer)
	assert.Empty(t, r.mutating().Webhooks[0].Rules, "the watch is down")
	down = 0
	r.step(writer)
	require.NotEmpty(t, r.mutating().Webhooks[0].Rules)
	r.step(other)
	assert.NotNil(t, other.serving.Load(), "a replica does not wait for an active webhook")
	assert.NoError(t, other.Registered(nil))
}

func TestAReplicaAwaitsTheRestartOfItsWatchAfterAnotherReplicaWroteTheConversion(t *testing.T) {
	r := installedFixture(t)
	writer, other := r.replica(""), r.replica("")
	writer.watchDown = func() time.Duration { return 0 }
	down := time.Duration(0)
	other.watchDown = func() time.Duration { return down }
	reachable := false
	other.reachable = func(context.Context) (bool, error) { return reachable, nil }
	r.step(writer)
	r.step(other)
	require.Nil(t, r.conversion())
	reachable = true
	r.step(writer)
	require.NotNil(t, r.conversion())
	r.step(other)
	assert.Empty(t, r.mutating().Webhooks[0].Rules, "the API server has not ended the watch yet")
	r.now, down = r.now.Add(time.Second), 100*time.Millisecond
	r.step(other)
	down = 0
	r.step(other)
	assert.NotEmpty(t, r.mutating().Webhooks[0].Rules)
}

// A running manager of OpenKruise writes its conversion after each change of the definition. The reconciler
// must not interrupt the watches of SidecarSets repeatedly, and pods must get sidecars.
func TestTheConversionOfARunningControllerIsReplacedWithADelay(t *testing.T) {
	r := installedFixture(t)
	replica := r.replica("")
	replaced := 0
	replaceConversion := func() {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, r.store.Get(t.Context(), client.ObjectKey{Name: definitionName}, definition))
		if conversion := definition.Spec.Conversion; conversion != nil && conversion.Webhook != nil && conversion.Webhook.ClientConfig.Service.Name == "other" {
			return
		}
		definition.Spec.Conversion = endpoint{service: "other", namespace: "system"}.conversion(nil)
		require.NoError(t, r.store.Update(t.Context(), definition))
		replaced++
	}
	for range 60 {
		replaceConversion()
		_, err := replica.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		r.now = r.now.Add(time.Second)
	}
	assert.Equal(t, 1+6, replaced, "the writes at 0, 1, 3, 7, 15 and 31 seconds are replaced")
	assert.NotEmpty(t, r.mutating().Webhooks[0].Rules, "the webhook is active")
	require.NoError(t, replica.Registered(nil))

	// The other controller stops.
	r.now = r.now.Add(maxConversionDelay)
	r.step(replica)
	assert.Equal(t, "hook", r.conversion().ClientConfig.Service.Name)
	r.now = r.now.Add(conversionKept + time.Second)
	replaceConversion()
	r.step(replica)
	assert.Equal(t, "hook", r.conversion().ClientConfig.Service.Name, "without a delay")
}

// API servers cannot reach the webhook, so the conversion is suspended. The caches of all roles must sync
// before the webhook writes the conversion again.
func TestASuspendedConversionIsClaimedAgainAfterADelay(t *testing.T) {
	r := installedFixture(t)
	writer, replica := r.replica(""), r.replica("")
	r.start(writer)
	r.start(replica) // without a write of the conversion
	r.now = r.now.Add(conversionKept)
	r.step(replica)
	definition := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, r.store.Get(t.Context(), client.ObjectKey{Name: definitionName}, definition))
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	require.NoError(t, r.store.Update(t.Context(), definition))
	result, err := replica.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Nil(t, r.conversion())
	assert.Positive(t, result.RequeueAfter)
	r.now = r.now.Add(maxConversionDelay)
	r.step(replica)
	assert.NotNil(t, r.conversion())
}

func TestARejectedWriteOfTheConversionIsRetriedWithoutADelay(t *testing.T) {
	r := installedFixture(t)
	replica := r.replica("")
	conflicts := 2
	replica.client = interceptor.NewClient(r.store.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok && conflicts > 0 {
				conflicts--
				return apierrors.NewConflict(schema.GroupResource{Resource: "customresourcedefinitions"}, definitionName, nil)
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	reconciles := func() {
		for range 5 {
			_, err := replica.Reconcile(t.Context(), reconcile.Request{})
			require.NoError(t, err)
		}
		assert.Zero(t, conflicts)
		assert.Equal(t, "hook", r.conversion().ClientConfig.Service.Name)
	}
	reconciles()

	// The delay after the conversion of another controller has elapsed.
	definition := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, r.store.Get(t.Context(), client.ObjectKey{Name: definitionName}, definition))
	definition.Spec.Conversion = endpoint{service: "other", namespace: "system"}.conversion(nil)
	require.NoError(t, r.store.Update(t.Context(), definition))
	replica.conversionBackoff, conflicts = maxConversionDelay/2, 2
	r.now = r.now.Add(maxConversionDelay / 2)
	reconciles()
}

func TestRenewalIsSeamlessForAllReplicas(t *testing.T) {
	r := installedFixture(t)
	a, b := r.replica(""), r.replica("")
	r.start(a, b)
	first := a.serving.Load().Leaf
	require.True(t, first.Equal(b.serving.Load().Leaf), "replicas share one certificate")
	assert.Equal(t, "outrigger-webhook", r.mutating().Webhooks[0].ClientConfig.Service.Name, "as installed")
	assert.Equal(t, "hook", r.conversion().ClientConfig.Service.Name)

	r.now = first.NotAfter.Add(-renewBefore - time.Minute)
	r.step(a)
	assert.True(t, first.Equal(a.serving.Load().Leaf), "too early")

	r.now = first.NotAfter.Add(-renewBefore + time.Minute)
	r.step(a) // issues the new certificate
	r.step(b) // writes the CA of the new certificate
	assert.True(t, first.Equal(b.serving.Load().Leaf), "other API servers may not have seen the CA yet")
	r.now = r.now.Add(propagationDelay)
	r.step(b) // serves the new certificate
	r.trusted(a)
	second := b.serving.Load().Leaf
	assert.False(t, first.Equal(second))
	assert.True(t, first.Equal(a.serving.Load().Leaf), "a still serves the one before")
	r.step(a)
	r.now = r.now.Add(propagationDelay)
	r.step(a)
	assert.True(t, second.Equal(a.serving.Load().Leaf))

	r.now = first.NotAfter.Add(time.Minute)
	r.step(a)
	assert.Equal(t, r.secret().Data[caKey], r.mutating().Webhooks[0].ClientConfig.CABundle, "an expired CA is dropped")
}

func TestTheServingCertificateStaysTrustedWhenTheSecretIsLost(t *testing.T) {
	for name, lose := range map[string]func(*fixture){
		"deleted": func(r *fixture) { require.NoError(r.t, r.store.Delete(r.t.Context(), r.secret())) },
		"emptied": func(r *fixture) {
			secret := r.secret()
			secret.Data = nil
			require.NoError(r.t, r.store.Update(r.t.Context(), secret))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := installedFixture(t)
			replica := r.replica("")
			r.start(replica)
			first := replica.serving.Load().Leaf
			lose(r)
			r.step(replica) // issues another certificate
			r.step(replica) // writes the CA of the new certificate
			assert.True(t, first.Equal(replica.serving.Load().Leaf))
			r.now = r.now.Add(propagationDelay)
			r.step(replica)
			assert.False(t, first.Equal(replica.serving.Load().Leaf))
		})
	}
}

func TestANewCertificateIsNotServedBeforeItIsTrusted(t *testing.T) {
	r := installedFixture(t)
	r.start(r.replica(""))
	another := r.replica("") // starts while the webhook is active
	secret := r.secret()
	// write writes the two CAs into the configurations and into the conversion.
	write := func(configurations, conversion []byte) {
		live, err := another.read(t.Context())
		require.NoError(t, err)
		for _, configuration := range live.configurations {
			_, err := another.writeConfiguration(t.Context(), configuration, configurations)
			require.NoError(t, err)
		}
		_, err = another.writeConversion(t.Context(), live.definition, conversion)
		require.NoError(t, err)
	}
	unserved := func(why string) {
		t.Helper()
		_, err := another.serveTrusted(t.Context(), secret)
		require.NoError(t, err)
		_, err = another.Certificate(nil)
		require.ErrorIs(t, err, errNoCertificate, why)
		require.Error(t, another.Registered(nil))
	}
	write([]byte("another"), secret.Data[caKey])
	unserved("with configurations that trust another CA")
	write(secret.Data[caKey], []byte("another"))
	unserved("with a conversion that trusts another CA")
	write(secret.Data[caKey], secret.Data[caKey])
	_, err := another.serveTrusted(t.Context(), secret)
	require.NoError(t, err)
	require.NotNil(t, another.serving.Load())
}

func TestACertificateForOtherHostsIsReplaced(t *testing.T) {
	r := installedFixture(t)
	inCluster := r.replica("")
	r.start(inCluster)
	outside := r.replica("https://dev.example.com:9443")
	require.NoError(t, r.store.Delete(t.Context(), r.mutating()))
	require.NoError(t, r.store.Delete(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configurationName}}))
	r.install("https://dev.example.com:9443")
	r.start(outside)
	require.NoError(t, r.store.Delete(t.Context(), r.mutating()))
	require.NoError(t, r.store.Delete(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: configurationName}}))
	r.install("")
	assert.Equal(t, []string{"dev.example.com", "hook.system.svc"}, outside.serving.Load().Leaf.DNSNames)
	r.start(inCluster)
	assert.True(t, outside.serving.Load().Leaf.Equal(inCluster.serving.Load().Leaf), "it serves both")
}

func TestInvalidURLsAreRejected(t *testing.T) {
	for _, url := range []string{"http://localhost:9443", "https://127.0.0.1:9443", "https://[::1]:9443", "localhost:9443", "https://", "%"} {
		_, err := New(Options{URL: url})
		require.ErrorContains(t, err, "webhook URL", url)
	}
}
