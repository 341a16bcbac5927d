package kube

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestSpec11_10_NodesAreListedAgainForNewNodes(t *testing.T) {
	const zone = corev1.LabelTopologyZone
	lists, failure := 0, error(nil)
	calls := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		assert.IsType(t, &metav1.PartialObjectMetadataList{}, list, "nodes have megabytes of status")
		lists++
		if failure != nil {
			return failure
		}
		return c.List(ctx, list, options...)
	}}
	scheme, err := NewScheme()
	require.NoError(t, err)
	server := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(calls).WithObjects(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{zone: "x"}}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}).Build()
	clock := clocktesting.NewFakePassiveClock(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC))
	nodes := NewNodeLabels(server, clock)
	domain := func(node string) string {
		of, err := nodes.Values(t.Context(), zone, slices.Values([]string{node}))
		require.NoError(t, err)
		return of(node)
	}
	for node, want := range map[string]string{"a": "x", "b": "", "": ""} {
		assert.Equal(t, want, domain(node))
	}
	assert.Equal(t, 1, lists)

	require.NoError(t, server.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{zone: "y"}}}))
	clock.SetTime(clock.Now().Add(unknownNodesAge))
	assert.Equal(t, "x", domain("a"))
	assert.Equal(t, 1, lists)
	assert.Equal(t, "y", domain("c"))
	assert.Equal(t, 2, lists)
	assert.Empty(t, domain("deleted"))
	assert.Equal(t, 2, lists, "a node that does not exist is not looked up at each plan")

	failure = errors.New("forbidden")
	clock.SetTime(clock.Now().Add(nodesAge))
	_, err = nodes.Values(t.Context(), zone, slices.Values([]string{"a"}))
	require.EqualError(t, err, "list nodes for the domains of label topology.kubernetes.io/zone: forbidden (apply config/rbac if the permission is missing)")
}

// While the API server does not respond to a list, a canceled caller returns, and a list for another label is
// not blocked.
func TestSpec11_10_AListOfNodesBlocksNoOtherCaller(t *testing.T) {
	const zone, rack = corev1.LabelTopologyZone, "rack"
	listing, answer := make(chan context.Context), make(chan struct{})
	calls := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		listing <- ctx
		<-answer
		return c.List(ctx, list, options...)
	}}
	scheme, err := NewScheme()
	require.NoError(t, err)
	server := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(calls).Build()
	nodes := NewNodeLabels(server, clocktesting.NewFakePassiveClock(time.Date(2024, 1, 2, 12, 0, 0, 0, time.UTC)))
	errs := make(chan error)
	list := func(label string) {
		_, err := nodes.Values(t.Context(), label, slices.Values([]string(nil)))
		errs <- err
	}
	go list(zone)
	ctx := <-listing
	_, bounded := ctx.Deadline()
	assert.True(t, bounded)

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = nodes.Values(canceled, zone, slices.Values([]string(nil)))
	require.ErrorIs(t, err, context.Canceled)

	go list(rack)
	<-listing
	close(answer)
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
}

// A list begins, a node is created, and a caller that needs the node joins the list. Without the label of the node,
// the limit of domains would not apply to its pods.
func TestSpec11_10_AListInProgressIsRepeatedForANewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const zone = corev1.LabelTopologyZone
		lists := 0
		calls := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			lists++
			err := c.List(ctx, list, options...)
			time.Sleep(2 * unknownNodesAge)
			return err
		}}
		scheme, err := NewScheme()
		require.NoError(t, err)
		server := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(calls).Build()
		nodes := NewNodeLabels(server, clock.RealClock{})
		first := make(chan error)
		go func() {
			_, err := nodes.Values(t.Context(), zone, slices.Values([]string{"a"}))
			first <- err
		}()
		synctest.Wait()
		time.Sleep(time.Second)
		require.NoError(t, server.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{zone: "y"}}}))
		of, err := nodes.Values(t.Context(), zone, slices.Values([]string{"c"}))
		require.NoError(t, err)
		assert.Equal(t, "y", of("c"))
		assert.Equal(t, 2, lists)
		require.NoError(t, <-first)
	})
}
