package crd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionregistrationv1.AddToScheme, appsv1.AddToScheme, apiextensionsv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return scheme
}

// defined returns a client of a cluster with the CustomResourceDefinition of another installation.
func defined(t *testing.T, strategy apiextensionsv1.ConversionStrategyType) client.Client {
	t.Helper()
	version := func(name string, fields ...string) apiextensionsv1.CustomResourceDefinitionVersion {
		spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for _, field := range fields {
			spec.Properties[field] = apiextensionsv1.JSONSchemaProps{Type: "string", Description: "theirs"}
		}
		return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}},
		}}
	}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: Name}}
	definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version("v1alpha1", "namespace"), version("v1beta1", "customVersion")}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: strategy}
	if strategy == apiextensionsv1.WebhookConverter {
		definition.Spec.Conversion.Webhook = &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}}
	}
	return fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(definition).Build()
}

// fieldsOf returns the conversion strategy, and the descriptions of the fields of spec by version and field.
func fieldsOf(t *testing.T, c client.Client) (strategy apiextensionsv1.ConversionStrategyType, fields map[string]map[string]string) {
	t.Helper()
	definition, err := Get(t.Context(), c)
	require.NoError(t, err)
	fields = map[string]map[string]string{}
	for _, version := range definition.Spec.Versions {
		fields[version.Name] = map[string]string{}
		for name, schema := range version.Schema.OpenAPIV3Schema.Properties["spec"].Properties {
			fields[version.Name][name] = schema.Description
		}
	}
	return definition.Spec.Conversion.Strategy, fields
}

func TestSuspendedConversionLosesNoField(t *testing.T) {
	both := map[string]map[string]string{
		"v1alpha1": {"namespace": "theirs", "customVersion": ""}, "v1beta1": {"namespace": "", "customVersion": "theirs"},
	}
	c := defined(t, apiextensionsv1.WebhookConverter)
	changed, err := SuspendConversion(t.Context(), c)
	require.NoError(t, err)
	assert.True(t, changed)
	strategy, fields := fieldsOf(t, c)
	assert.Equal(t, apiextensionsv1.NoneConverter, strategy)
	assert.Equal(t, both, fields)
	changed, err = SuspendConversion(t.Context(), c)
	require.NoError(t, err)
	assert.False(t, changed, "nothing is left to do")

	c = defined(t, apiextensionsv1.NoneConverter)
	changed, err = KeepFields(t.Context(), c)
	require.NoError(t, err)
	assert.True(t, changed)
	_, fields = fieldsOf(t, c)
	assert.Equal(t, both, fields, "suspended by hand")
}

func TestADefinitionThatConvertsIsTheirs(t *testing.T) {
	c := defined(t, apiextensionsv1.WebhookConverter)
	changed, err := KeepFields(t.Context(), c)
	require.NoError(t, err)
	assert.False(t, changed)
	_, fields := fieldsOf(t, c)
	assert.Len(t, fields["v1alpha1"], 1)
}

// stuck is a ConversionGuard of a process that cannot read SidecarSets.
type stuck struct {
	*ConversionGuard
	clock  *clocktesting.FakeClock
	client client.Client
	since  time.Time
	asked  chan struct{}
}

func newStuck(t *testing.T, cause error) *stuck {
	t.Helper()
	s := &stuck{clock: clocktesting.NewFakeClock(time.Now()), client: defined(t, apiextensionsv1.WebhookConverter), asked: make(chan struct{})}
	s.since = s.clock.Now()
	s.ConversionGuard = &ConversionGuard{
		client: s.client, clock: s.clock, log: logr.Discard(),
		down: func() time.Duration {
			s.asked <- struct{}{}
			return s.clock.Since(s.since)
		},
		readSets: func(context.Context) error { return cause },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	require.Eventually(t, s.clock.HasWaiters, time.Minute, time.Millisecond)
	return s
}

// pass advances the clock in steps of one second, and waits for the check of the guard after each step.
func (s *stuck) pass(seconds int) {
	for range seconds {
		s.clock.Step(time.Second)
		<-s.asked
	}
}

func (s *stuck) strategy(t *testing.T) apiextensionsv1.ConversionStrategyType {
	t.Helper()
	strategy, _ := fieldsOf(t, s.client)
	return strategy
}

func TestConversionIsSuspendedAfterALongOutageOfTheWebhook(t *testing.T) {
	cause := errors.New(`conversion webhook for apps.kruise.io/v1beta1, Kind=SidecarSet failed: Post "https://gone.svc:443/convert": not found`)
	s := newStuck(t, cause)
	s.pass(2)
	assert.Equal(t, apiextensionsv1.WebhookConverter, s.strategy(t))
	s.pass(2)
	assert.Equal(t, apiextensionsv1.NoneConverter, s.strategy(t))
}

func TestOtherTroubleIsNotThatOfConversion(t *testing.T) {
	s := newStuck(t, errors.New("connection refused"))
	s.pass(60)
	assert.Equal(t, apiextensionsv1.WebhookConverter, s.strategy(t))
}
