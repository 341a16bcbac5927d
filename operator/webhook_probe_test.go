package operator

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
)

// configurationOf returns a webhook configuration that points to a test server.
func configurationOf(server *httptest.Server) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: kube.WebhookConfigurationName},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: kube.PodWebhookName, Rules: make([]admissionregistrationv1.RuleWithOperations, 1),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      ptr.To(server.URL + "/mutate-pod"),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
		}},
	}
}

func TestSpec8_AWebhookThatDoesNotAnswerIsUnavailable(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	configuration := configurationOf(server)
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(configuration).Build()
	p := newWebhookProbe(&podWebhook{live: live, namespace: "kruise-system", clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0))})

	set := &v1alpha1.SidecarSet{}
	check := func() string {
		p.check(t.Context())
		return p.unavailable(set)
	}
	requeued := func() bool {
		select {
		case <-p.changes:
			return true
		default:
			return false
		}
	}
	set.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionInjected, Status: "False", Reason: v1alpha1.ReasonWebhookUnavailable, Message: "stored"}}
	assert.Equal(t, "stored", p.unavailable(set), "an operator that has just started knows no better")
	assert.Empty(t, check())
	assert.True(t, requeued())

	server.Close()
	assert.Empty(t, check(), "one failure may be a restart")
	assert.False(t, requeued())
	want := "the webhook at " + server.Listener.Addr().String() + " does not respond to the operator (connection refused); until it responds, new pods are rejected (failurePolicy Fail); " +
		"find its pods: kubectl get pods -n kruise-system -l app.kubernetes.io/component=webhook"
	assert.Equal(t, want, check())
	assert.True(t, requeued())
	assert.Equal(t, want, check())
	assert.False(t, requeued())

	configuration.Webhooks[0].FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
	require.NoError(t, live.Update(t.Context(), configuration))
	check()
	assert.Contains(t, check(), "new pods get no sidecars (failurePolicy Ignore)")
	assert.True(t, requeued(), "the effect is another one")

	// Another replica serves another certificate. The configuration contains only the CA of that certificate.
	other := httptest.NewTLSServer(nil)
	defer other.Close()
	require.NoError(t, live.Delete(t.Context(), configuration))
	require.NoError(t, live.Create(t.Context(), configurationOf(other)))
	assert.NotEmpty(t, check(), "one answer may be that of the only replica that serves")
	assert.Empty(t, check())
	assert.True(t, requeued())
}

func TestSpec8_AFaultWhoseCauseChangesIsReported(t *testing.T) {
	p := newWebhookProbe(&podWebhook{namespace: "kruise-system"})
	installed := &admissionregistrationv1.MutatingWebhook{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://10.0.0.1:9443/mutate-pod")}}
	expired := func(now string) string {
		return p.describe(installed, &tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired, Detail: "current time " + now + " is after 2026-01-01"}})
	}
	assert.Equal(t, expired("10:00:00"), expired("10:00:02"), "the time is no part of the text")
	assert.Contains(t, expired("10:00:00"), "certificate has expired or is not yet valid")

	// One replica rejects connections, and another replica does not respond.
	set := &v1alpha1.SidecarSet{}
	assert.False(t, p.record("refused"))
	assert.True(t, p.record("timeout"), "two probes found a fault")
	assert.Equal(t, "timeout", p.unavailable(set))
	assert.False(t, p.record("refused"), "status is not written for each probe")
	assert.False(t, p.record("timeout"))
	assert.False(t, p.record("refused"))
	assert.Equal(t, "timeout", p.unavailable(set))
	assert.True(t, p.record("refused"), "the cause has changed for good")
	assert.False(t, p.record(""))
	assert.True(t, p.record(""))
}

func TestConnect(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	for name, c := range map[string]struct {
		change func(*admissionregistrationv1.MutatingWebhook)
		want   string
	}{
		"available": {func(*admissionregistrationv1.MutatingWebhook) {}, ""},
		"not activated": {func(w *admissionregistrationv1.MutatingWebhook) {
			w.Rules, w.ClientConfig.CABundle = nil, []byte("none")
		}, ""},
		"another CA": {func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = []byte("none") }, "certificate signed by unknown authority"},
		"another name": {func(w *admissionregistrationv1.MutatingWebhook) {
			*w.ClientConfig.URL = strings.Replace(*w.ClientConfig.URL, "127.0.0.1", "localhost", 1)
		}, "certificate is valid for"},
		"no host": {func(w *admissionregistrationv1.MutatingWebhook) { *w.ClientConfig.URL = "/mutate-pod" }, "neither a service nor a URL"},
		"outside of the cluster": {func(w *admissionregistrationv1.MutatingWebhook) {
			w.ClientConfig.URL, w.ClientConfig.Service = nil, &admissionregistrationv1.ServiceReference{Namespace: "kruise-system", Name: "no-such-service"}
		}, errUndecided.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			webhook := &configurationOf(server).Webhooks[0]
			c.change(webhook)
			err := connect(t.Context(), webhook)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
	require.NoError(t, connect(t.Context(), nil), "no webhook is installed")
}

// The configuration is read once a minute, and has no rules until the webhook is activated.
func TestSpec8_AWebhookIsProbedAsSoonAsItIsActivated(t *testing.T) {
	server := httptest.NewTLSServer(nil)
	configuration := configurationOf(server)
	rules := configuration.Webhooks[0].Rules
	configuration.Webhooks[0].Rules = nil
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	live := fake.NewClientBuilder().WithScheme(scheme).WithObjects(configuration).Build()
	p := newWebhookProbe(&podWebhook{live: live, namespace: "kruise-system", clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0))})
	server.Close()
	p.check(t.Context())
	p.check(t.Context())
	assert.Empty(t, p.unavailable(&v1alpha1.SidecarSet{}), "API servers do not call a webhook without rules")
	configuration.Webhooks[0].Rules = rules
	require.NoError(t, live.Update(t.Context(), configuration))
	p.check(t.Context())
	p.check(t.Context())
	assert.Contains(t, p.unavailable(&v1alpha1.SidecarSet{}), "does not respond to the operator (connection refused)")
}
