package storage

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/fixture"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/kube/crd"
)

// stores is a cluster whose SidecarSets may be stored in both versions.
type stores struct {
	*Migrator
	t *testing.T
	// written are the names of the SidecarSets that were written, in order. reject contains the
	// errors of writes that fail.
	written []string
	reject  map[string]error
	// meanwhile is called during every write.
	meanwhile func()
	clock     *clocktesting.FakePassiveClock
}

func newStores(t *testing.T, strategy apiextensionsv1.ConversionStrategyType) *stores {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name, UID: "u", Generation: 1}}
	definition.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1alpha1", Storage: true}, {Name: "v1beta1"}}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: strategy}
	definition.Status.StoredVersions = []string{"v1beta1", "v1alpha1"}
	scheme, err := kube.NewScheme()
	require.NoError(t, err)
	s := &stores{t: t, reject: map[string]error{}, meanwhile: func() {}}
	c := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(definition, fixture.SidecarSet("a"), fixture.SidecarSet("b"), fixture.SidecarSet("c")).
		WithStatusSubresource(definition, &v1alpha1.SidecarSet{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: func(_ context.Context, _ client.Client, _ string, set client.Object, _ ...client.SubResourceUpdateOption) error {
			s.meanwhile()
			s.written = append(s.written, set.GetName())
			return s.reject[set.GetName()]
		}}).Build()
	s.clock = clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	s.Migrator = &Migrator{Client: c, Clock: s.clock}
	return s
}

func (s *stores) definition() *apiextensionsv1.CustomResourceDefinition {
	s.t.Helper()
	definition, err := crd.Get(s.t.Context(), s.Client)
	require.NoError(s.t, err)
	return definition
}

// pass advances the clock by propagationTime.
func (s *stores) pass() { s.clock.SetTime(s.clock.Now().Add(propagationTime)) }

// reconcile returns the requeueAfter of the result.
func (s *stores) reconcile() time.Duration {
	s.t.Helper()
	result, err := s.Reconcile(s.t.Context(), reconcile.Request{})
	require.NoError(s.t, err)
	return result.RequeueAfter
}

func TestAVersionIsDroppedOnceNothingIsStoredInIt(t *testing.T) {
	s := newStores(t, apiextensionsv1.WebhookConverter)
	resource := schema.GroupResource{Resource: "sidecarsets"}
	s.reject["a"] = apierrors.NewConflict(resource, "a", nil)
	s.reject["b"] = apierrors.NewNotFound(resource, "b")
	assert.Equal(t, propagationTime, s.reconcile())
	s.clock.SetTime(s.clock.Now().Add(propagationTime - 1))
	assert.Equal(t, propagationTime, s.reconcile(), "an event of the same generation")
	assert.Empty(t, s.written, "some API servers may not know the definition yet")
	s.clock.SetTime(s.clock.Now().Add(1))
	assert.Zero(t, s.reconcile())
	assert.Equal(t, []string{"a", "b", "c"}, s.written)
	assert.Equal(t, []string{"v1alpha1"}, s.definition().Status.StoredVersions)
	assert.Zero(t, s.reconcile(), "nothing is asked again until the definition changes")
	assert.Len(t, s.written, 3, "nothing is written again")
}

func TestAVersionStaysWhileASetMayBeStoredInIt(t *testing.T) {
	both := []string{"v1beta1", "v1alpha1"}
	t.Run("a write failed", func(t *testing.T) {
		s := newStores(t, apiextensionsv1.WebhookConverter)
		s.reject["b"] = apierrors.NewInternalError(context.DeadlineExceeded)
		require.Equal(t, propagationTime, s.reconcile())
		s.pass()
		_, err := s.migrate(t.Context())
		require.ErrorContains(t, err, "store SidecarSet b as v1alpha1")
		assert.Equal(t, propagationTime, s.reconcile(), "it is tried again")
		assert.Equal(t, both, s.definition().Status.StoredVersions)
	})
	t.Run("no conversion", func(t *testing.T) {
		s := newStores(t, apiextensionsv1.NoneConverter)
		assert.Zero(t, s.reconcile(), "conversion comes with another definition")
		assert.Empty(t, s.written)
		assert.Equal(t, both, s.definition().Status.StoredVersions)
	})
	t.Run("the definition changed meanwhile", func(t *testing.T) {
		s := newStores(t, apiextensionsv1.WebhookConverter)
		s.meanwhile = func() {
			definition := s.definition()
			definition.Spec.Versions[0].Storage, definition.Spec.Versions[1].Storage = false, true
			definition.Generation++
			require.NoError(t, s.Client.Update(t.Context(), definition))
		}
		require.Equal(t, propagationTime, s.reconcile())
		s.pass()
		_, err := s.migrate(t.Context())
		require.True(t, apierrors.IsConflict(err))
		assert.Equal(t, both, s.definition().Status.StoredVersions)
	})
}
