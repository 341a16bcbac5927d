package kube

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// defined is a definition of others, as the API server has it.
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
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: CRDName}}
	definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version("v1alpha1", "namespace"), version("v1beta1", "customVersion")}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: strategy}
	if strategy == apiextensionsv1.WebhookConverter {
		definition.Spec.Conversion.Webhook = &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}}
	}
	scheme, err := NewScheme()
	require.NoError(t, err)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(definition).Build()
}

// fieldsOf each version that the other one has, with their descriptions.
func fieldsOf(t *testing.T, c client.Client) (strategy apiextensionsv1.ConversionStrategyType, fields map[string]map[string]string) {
	t.Helper()
	definition, err := CRD(t.Context(), c)
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
	assert.Equal(t, both, fields, "somebody suspended it by hand")
}

func TestADefinitionThatConvertsIsTheirs(t *testing.T) {
	c := defined(t, apiextensionsv1.WebhookConverter)
	changed, err := KeepFields(t.Context(), c)
	require.NoError(t, err)
	assert.False(t, changed)
	_, fields := fieldsOf(t, c)
	assert.Len(t, fields["v1alpha1"], 1)
}

// stuck has a role that cannot read sets, for a reason.
type stuck struct {
	*conversionGuard
	clock  *clocktesting.FakeClock
	client client.Client
	since  time.Time
	asked  chan struct{}
}

func newStuck(t *testing.T, cause error) *stuck {
	t.Helper()
	s := &stuck{clock: clocktesting.NewFakeClock(time.Now()), client: defined(t, apiextensionsv1.WebhookConverter), asked: make(chan struct{})}
	s.since = s.clock.Now()
	s.conversionGuard = &conversionGuard{
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
		s.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	require.Eventually(t, s.clock.HasWaiters, time.Minute, time.Millisecond)
	return s
}

// pass lets time pass, and returns once it was looked at before.
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

func TestConversionIsSuspendedOnceNobodyHasConvertedForLong(t *testing.T) {
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
