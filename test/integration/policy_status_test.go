package integration

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
)

// createUntilEnd creates an object, and deletes the object at the end of the test.
func createUntilEnd(t *testing.T, object client.Object) {
	t.Helper()
	require.NoError(t, stack.kube.Create(t.Context(), object))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(stack.kube.Delete(context.WithoutCancel(t.Context()), object)))
	})
}

func labelledSet(name, tier string) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"policy-status": tier}}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{}}
	set.Spec.Containers[0].Name, set.Spec.Containers[0].Image = name, "side:v1"
	return set
}

func createPolicy(t *testing.T, name string, precedence int32, tiers ...string) *outriggerv1.RolloutPolicy {
	t.Helper()
	policy := &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.MatchingPrecedence = precedence
	policy.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "policy-status", Operator: metav1.LabelSelectorOpIn, Values: tiers}}
	createUntilEnd(t, policy)
	return policy
}

// awaitNames waits until the status of a policy contains exactly names, and returns the policy.
func awaitNames(t *testing.T, policy *outriggerv1.RolloutPolicy, names ...string) *outriggerv1.RolloutPolicy {
	t.Helper()
	read := &outriggerv1.RolloutPolicy{}
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := stack.kube.Get(ctx, client.ObjectKeyFromObject(policy), read); err != nil {
			return false, err
		}
		return read.Status.ObservedGeneration == read.Generation && slices.Equal(read.Status.Names, names), nil
	})
	require.NoError(t, err, "status of %s: %+v, want %v", policy.Name, read.Status, names)
	assert.EqualValues(t, len(names), read.Status.SidecarSets)
	return read
}

func TestSpec11_1_StatusOfAPolicyNamesItsSidecarSets(t *testing.T) {
	t.Parallel()
	first := createPolicy(t, "status-first", 1, "edge")
	second := createPolicy(t, "status-second", 2, "edge", "core")
	for _, set := range []*v1alpha1.SidecarSet{labelledSet("status-b", "edge"), labelledSet("status-a", "edge"), labelledSet("status-c", "core")} {
		createUntilEnd(t, set)
	}
	awaitNames(t, first, "status-a", "status-b")
	awaitNames(t, second, "status-c")

	moved := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "status-a"}}
	relabel := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"policy-status":"core"}}}`))
	require.NoError(t, stack.kube.Patch(t.Context(), moved, relabel))
	awaitNames(t, first, "status-b")
	awaitNames(t, second, "status-a", "status-c")

	require.NoError(t, stack.kube.Delete(t.Context(), first))
	written := awaitNames(t, second, "status-a", "status-b", "status-c")

	narrow := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"selector":{"matchExpressions":[{"key":"policy-status","operator":"In","values":["edge"]}]}}}`))
	require.NoError(t, stack.kube.Patch(t.Context(), second, narrow))
	assert.Greater(t, awaitNames(t, second, "status-b").Status.ObservedGeneration, written.Status.ObservedGeneration)
}

// An installation that is older than RolloutPolicies and RolloutActions works without the definitions of
// these kinds.
func TestSpec11_1_TheOperatorWorksWithoutRolloutPolicies(t *testing.T) {
	t.Parallel()
	c, direct := startControlPlane(t)
	awaits := func(done func(context.Context) (bool, error)) {
		t.Helper()
		require.NoError(t, wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 3*time.Minute, true, done))
	}
	for _, kind := range []string{"rolloutpolicies", "rolloutactions"} {
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind + ".outrigger.io"}}
		require.NoError(t, direct.Delete(t.Context(), definition))
		awaits(func(ctx context.Context) (bool, error) {
			err := direct.Get(ctx, client.ObjectKeyFromObject(definition), definition)
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
	for _, role := range []string{cluster.Webhook, cluster.Operator} {
		_, err := c.StartRole(t.Context(), role)
		require.NoError(t, err)
	}
	set := labelledSet("alone", "none")
	awaits(func(ctx context.Context) (bool, error) { return direct.Create(ctx, set) == nil, nil })
	awaits(func(ctx context.Context) (bool, error) {
		err := direct.Get(ctx, client.ObjectKeyFromObject(set), set)
		return set.Status.ObservedGeneration == set.Generation, err
	})
	log, err := os.ReadFile(filepath.Join(c.LogDir(), "operator.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), "RolloutPolicies are not installed")
	assert.Contains(t, string(log), "RolloutActions are not installed")
}
