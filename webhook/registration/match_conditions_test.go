package registration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/webhook/server"
)

func selecting(name, app string) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	return set
}

func conditionFor(t *testing.T, apps ...string) match.Condition {
	t.Helper()
	var scopes []match.Scope
	for _, app := range apps {
		scope, err := match.NewScope(&selecting("s", app).Spec)
		require.NoError(t, err)
		scopes = append(scopes, scope)
	}
	return match.NewCondition(scopes...)
}

// followed returns the expression of the match condition match.ConditionName, or "" if the webhook does not
// have this condition.
func (r *fixture) followed() string {
	for _, condition := range r.mutating().Webhooks[0].MatchConditions {
		if condition.Name == match.ConditionName {
			return condition.Expression
		}
	}
	return ""
}

func (r *fixture) following() *Reconciler {
	replica := r.replica("")
	replica.matchConditions = true
	return replica
}

func (r *fixture) create(sets ...*v1alpha1.SidecarSet) {
	for _, set := range sets {
		require.NoError(r.t, r.store.Create(r.t.Context(), set))
	}
}

func (r *fixture) widener() *Widener {
	return NewWidener(r.store, r.store, clocktesting.NewFakeClock(r.now))
}

func TestSpec4_16_WithoutSidecarSetsNoPodWaits(t *testing.T) {
	r := installedFixture(t)
	r.start(r.following())
	assert.Equal(t, "false", r.followed(), "written with the rules, before any pod waits")
	assert.Len(t, r.mutating().Webhooks[0].MatchConditions, 2, "the installed condition stays")
}

func TestSpec4_16_WithoutTheFlagTheConditionIsRemoved(t *testing.T) {
	r := installedFixture(t)
	r.create(selecting("a", "a"))
	r.start(r.following())
	require.Equal(t, conditionFor(t, "a").Expression(), r.followed())
	require.NoError(t, r.widener().Widen(t.Context(), conditionFor(t, "b")))
	without := r.replica("")
	r.step(without)
	assert.Empty(t, r.followed())
	assert.NotContains(t, r.mutating().Annotations, widenedAnnotation)
	assert.Equal(t, []string{"not-system-critical"}, []string{r.mutating().Webhooks[0].MatchConditions[0].Name})
	written := r.mutating().ResourceVersion
	r.step(without)
	assert.Equal(t, written, r.mutating().ResourceVersion)
}

func TestSpec4_16_TheConditionIsWidenedAtOnceAndNarrowedLater(t *testing.T) {
	r := installedFixture(t)
	replica := r.following()
	r.create(selecting("a", "a"), selecting("b", "b"))
	r.start(replica)
	require.Equal(t, conditionFor(t, "a", "b").Expression(), r.followed())

	r.create(selecting("c", "c")) // accepted while no webhook ran
	r.step(replica)
	require.Equal(t, conditionFor(t, "a", "b", "c").Expression(), r.followed())
	require.NoError(t, r.store.Delete(t.Context(), selecting("b", "b")))
	r.step(replica)
	r.now = r.now.Add(narrowDelay - time.Second)
	result, err := replica.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	assert.Equal(t, time.Second, result.RequeueAfter)
	assert.Equal(t, conditionFor(t, "a", "b", "c").Expression(), r.followed())

	// This SidecarSet is not stored yet. The condition already contains the pods of this SidecarSet, so
	// only the annotation changes.
	require.NoError(t, r.widener().Widen(t.Context(), conditionFor(t, "b")))
	r.now = r.now.Add(2 * time.Second)
	r.step(replica)
	assert.Equal(t, conditionFor(t, "a", "b", "c").Expression(), r.followed(), "the delay starts again")
	r.now = r.now.Add(narrowDelay)
	r.step(replica)
	assert.Equal(t, conditionFor(t, "a", "c").Expression(), r.followed())
}

// The cache of a replica may lack a SidecarSet, or a widening of another replica.
func TestSpec4_16_ALateCacheDoesNotNarrow(t *testing.T) {
	r := installedFixture(t)
	replica := r.following()
	r.create(selecting("a", "a"), selecting("b", "b"))
	r.start(replica)
	late := r.mutating()
	current := replica.client
	replica.client = interceptor.NewClient(r.store.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if sets, ok := list.(*v1alpha1.SidecarSetList); ok {
				sets.Items = []v1alpha1.SidecarSet{*selecting("a", "a")}
				return nil
			}
			return c.List(ctx, list, options...)
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if configuration, ok := object.(*admissionregistrationv1.MutatingWebhookConfiguration); ok && late != nil {
				late.DeepCopyInto(configuration)
				return nil
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	r.step(replica)
	require.NoError(t, r.widener().Widen(t.Context(), conditionFor(t, "c")))
	r.now = r.now.Add(narrowDelay)
	r.step(replica)
	assert.Equal(t, conditionFor(t, "a", "b", "c").Expression(), r.followed(), "the configuration has changed since")
	late = nil
	r.step(replica)
	r.now = r.now.Add(narrowDelay)
	r.step(replica)
	assert.Equal(t, conditionFor(t, "a", "b").Expression(), r.followed(), "the API server has the second SidecarSet")
	replica.client = current
}

// Replicas with and without the flag, or of different versions, must not overwrite each other's condition
// repeatedly.
func TestSpec4_16_ReplicasWithAndWithoutTheFlagDoNotWriteInTurns(t *testing.T) {
	r := installedFixture(t)
	with, without := r.following(), r.replica("")
	r.start(with, without)
	require.Empty(t, r.followed())
	written := r.mutating().ResourceVersion
	for range 10 {
		r.step(with)
		r.step(without)
	}
	assert.Equal(t, written, r.mutating().ResourceVersion)
	r.now = r.now.Add(narrowDelay)
	r.step(with)
	assert.Equal(t, "false", r.followed())
}

func TestSpec4_16_ConcurrentWideningsOfSeveralReplicasAreMerged(t *testing.T) {
	r := installedFixture(t)
	r.start(r.following())
	replicas := []*Widener{r.widener(), r.widener(), r.widener()}
	var all sync.WaitGroup
	var apps []string
	for i := range 30 {
		app := fmt.Sprint(i)
		apps = append(apps, app)
		added := conditionFor(t, app)
		all.Go(func() { assert.NoError(t, replicas[i%3].Widen(t.Context(), added)) })
	}
	all.Wait()
	assert.Equal(t, conditionFor(t, apps...).Expression(), r.followed())
}

// The expression of the other client excludes pods that a SidecarSet selects.
func TestSpec4_16_AConditionThatAnotherClientChangedIsRemovedAtOnce(t *testing.T) {
	r := installedFixture(t)
	replica := r.following()
	r.create(selecting("a", "a"))
	r.start(replica)
	configuration := r.mutating()
	for i := range configuration.Webhooks[0].MatchConditions {
		if condition := &configuration.Webhooks[0].MatchConditions[i]; condition.Name == match.ConditionName {
			condition.Expression += " && request.namespace != 'x'"
		}
	}
	require.NoError(t, r.store.Update(t.Context(), configuration))
	scope, err := match.NewScope(&selecting("a", "a").Spec)
	require.NoError(t, err)
	assert.Equal(t, []string{match.ConditionName}, match.UnknownConditions(&configuration.Webhooks[0], scope))
	r.step(replica)
	assert.Empty(t, r.followed())
	r.now = r.now.Add(narrowDelay)
	r.step(replica)
	assert.Equal(t, conditionFor(t, "a").Expression(), r.followed())
}

func TestSpec4_16_TooManySelectorsRemoveTheCondition(t *testing.T) {
	r := installedFixture(t)
	r.start(r.following())
	many := make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	require.NoError(t, r.widener().Widen(t.Context(), conditionFor(t, many...)))
	assert.Empty(t, r.followed(), "API servers call the webhook for every pod")
}

func TestSpec4_16_AConditionThatCannotBeWrittenIsAnErrorWithARemedy(t *testing.T) {
	r := installedFixture(t)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, "outrigger", errors.New("no"))
	w := r.widener()
	w.client = interceptor.NewClient(r.store.(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return forbidden
		},
	})
	err := w.Widen(t.Context(), conditionFor(t, "a"))
	require.ErrorIs(t, err, forbidden)
	require.ErrorContains(t, err, "MutatingWebhookConfiguration outrigger")
	require.ErrorContains(t, err, "apply config/rbac")

	require.NoError(t, r.store.Delete(t.Context(), r.mutating()))
	require.NoError(t, w.Widen(t.Context(), conditionFor(t, "a")), "without a configuration no webhook is called")
}

// A request that waits after a write does not count toward the limit of concurrent validations.
func TestSpec4_16_TheAnswerIsDelayedAfterAWrite(t *testing.T) {
	r := installedFixture(t)
	r.start(r.following())
	clock := clocktesting.NewFakeClock(r.now)
	w := NewWidener(r.store, r.store, clock)
	answered, inner := make(chan int), make(chan bool, 1)
	answer := func(act func(context.Context) error) {
		respond := w.Await(func(ctx context.Context, _ *server.Buffers) (int, error) {
			defer func() { inner <- true }()
			return http.StatusOK, act(ctx)
		})
		go func() {
			status, err := respond(t.Context(), nil)
			assert.NoError(t, err)
			answered <- status
		}()
	}
	answer(func(context.Context) error { return nil })
	require.Equal(t, http.StatusOK, <-answered, "without a write, there is no delay")
	<-inner
	answer(func(ctx context.Context) error { return w.Widen(ctx, conditionFor(t, "a")) })
	<-inner
	require.Eventually(t, clock.HasWaiters, time.Minute, time.Millisecond)
	assert.Equal(t, conditionFor(t, "a").Expression(), r.followed(), "written before the delay")
	clock.Step(conditionDelay)
	require.Equal(t, http.StatusOK, <-answered)
}
