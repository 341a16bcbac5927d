package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// ofDatabase returns a ready pod of a StatefulSet, without sidecars.
func ofDatabase(name, uid string) *corev1.Pod {
	return plainPod("default", name, func(p *corev1.Pod) {
		p.UID, p.Spec.RestartPolicy = types.UID(uid), corev1.RestartPolicyAlways
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", Controller: new(true)}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	})
}

// evictable returns a cluster that evicts a pod if reject returns nil. If recreate is set, a new pod replaces
// the evicted pod immediately.
func evictable(t *testing.T, reject func(pod string) error, recreate bool, others ...client.Object) testCluster {
	t.Helper()
	objects := []client.Object{
		sidecarSet(t, "logs"), namespace("default"), installed(func(*admissionv1.MutatingWebhook) {}), ofDatabase("db-0", "0"), ofDatabase("db-1", "1"),
		plainPod("default", "bare"),
	}
	return newInterceptedCluster(t, interceptor.Funcs{
		SubResourceCreate: func(ctx context.Context, c client.Client, subresource string, object, eviction client.Object, options ...client.SubResourceCreateOption) error {
			require.Equal(t, "eviction", subresource)
			if err := reject(object.GetName()); err != nil {
				return err
			}
			if err := c.SubResource(subresource).Create(ctx, object, eviction, options...); err != nil || !recreate {
				return err
			}
			return c.Create(ctx, ofDatabase(object.GetName(), "new-"+object.GetName()))
		},
	}, append(objects, others...)...)
}

func database(replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Spec: appsv1.StatefulSetSpec{Replicas: &replicas}}
}

func TestRestartRetriesEvictionsThatADisruptionBudgetRejects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rejections := 3
		s := evictable(t, func(pod string) error {
			if pod == "db-1" && rejections > 0 {
				rejections--
				return apierrors.NewTooManyRequestsError("Cannot evict pod as it would violate the pod's disruption budget.")
			}
			return nil
		}, true)
		lines := strings.Split(s.shows("restart", "logs", "--timeout=1m"), "\n")
		require.Len(t, lines, 6)
		assert.Contains(t, lines[0], "evicted default/db-0: ")
		assert.NotContains(t, lines[0], "kubectl")
		assert.Equal(t, "the eviction of default/db-1 is rejected: Too many requests: Cannot evict pod as it would violate the pod's disruption budget. (retried)", lines[1])
		assert.Contains(t, lines[2], "evicted default/db-1: ")
		assert.Equal(t, "sidecarset/logs: 2 evicted, and their owners have as many ready pods as before", lines[3])
		assert.Contains(t, lines[4], "not evicted: default/bare: no controller recreates it")
	})
}

// A PodDisruptionBudget that rejects each eviction must not cause thousands of requests every two seconds, and
// must not prevent the eviction of the last pod.
func TestRestartReadsThePodsAgainAfterSomeRejections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []client.Object
		for i := range 2 * maxRejections {
			pods = append(pods, ofDatabase(fmt.Sprintf("db-x%02d", i), fmt.Sprintf("x%02d", i)))
		}
		last := pods[len(pods)-1].GetName()
		var tried []string
		start := time.Now()
		s := evictable(t, func(pod string) error {
			if tried = append(tried, pod); pod == last {
				return nil
			}
			return apierrors.NewTooManyRequestsError("a disruption budget")
		}, true, pods...)
		require.ErrorContains(t, s.run("restart", "logs", "--timeout=9s").err, "not all pods")
		require.NotEmpty(t, tried)
		assert.Less(t, len(tried), 6*maxRejections)
		assert.Contains(t, tried, last)
		assert.Equal(t, 9*time.Second, time.Since(start))
	})
}

func TestRestartEndsAtTheTimeoutWithTheOwnersThatLackPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := evictable(t, func(string) error { return nil }, false, database(2))
		got := s.run("restart", "logs", "--timeout=1m")
		require.EqualError(t, got.err, "not all pods of SidecarSet logs are recreated after 1m0s: statefulset/db in default has 1 of 2 ready pods")
		assert.Equal(t, 1, strings.Count(got.out, "evicted "), "maxUnavailable is 1")
		require.NoError(t, s.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "db-1"}, &corev1.Pod{}))
	})
}

func TestADryRunOfRestartEvictsNothing(t *testing.T) {
	s := evictable(t, func(string) error { t.Error("an eviction"); return nil }, false)
	assert.Equal(t, s.shows("restart", "logs", "--dry-run=client"), s.shows("restart", "logs", "--dry-run"))
	require.EqualError(t, s.run("restart", "logs", "--dry-run=maybe").err, `--dry-run "maybe": use none, client or server`)
	out := s.shows("restart", "logs", "--dry-run")
	assert.Regexp(t, `default +db-0 +logs +Missing`, out)
	assert.Contains(t, out, "not evicted: default/bare: ")
	require.EqualError(t, s.run("restart", "logs", "--timeout=-1s").err, "--timeout must be positive, or 0 for none")
}

func TestAServerDryRunOfRestartTriesEachEviction(t *testing.T) {
	var dry []string
	s := newInterceptedCluster(t, interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, _ string, object, _ client.Object, options ...client.SubResourceCreateOption) error {
			dry = append(dry, (&client.SubResourceCreateOptions{}).ApplyOptions(options).DryRun...)
			if object.GetName() == "db-0" {
				return nil
			}
			return apierrors.NewTooManyRequestsError("a disruption budget")
		},
	}, sidecarSet(t, "logs"), namespace("default"), installed(func(*admissionv1.MutatingWebhook) {}), ofDatabase("db-0", "0"), ofDatabase("db-1", "1"))
	out := s.shows("restart", "logs", "--dry-run=server")
	assert.Equal(t, []string{"All", "All"}, dry)
	assert.Contains(t, out, "the eviction of default/db-1 is rejected: Too many requests: a disruption budget\n")
	assert.NotContains(t, out, "of default/db-0 is rejected")
}

func TestRestartDoesNotWaitForPodsOfAnOwnerThatIsScaledDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := evictable(t, func(string) error { return nil }, false, database(0))
		assert.Contains(t, s.shows("restart", "logs", "--timeout=1m"), "sidecarset/logs: 2 evicted, ")
	})
}

func TestRestartDoesNotWaitForPodsOfAnOwnerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s testCluster
		s = evictable(t, func(string) error { return s.Delete(t.Context(), ofDatabase("db-1", "1")) }, false)
		assert.Contains(t, s.shows("restart", "logs", "--timeout=1m"), "sidecarset/logs: 1 evicted, ")
	})
}

func TestRestartEvictsTheOtherPodsAfterAFailedEviction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := evictable(t, func(pod string) error {
			if pod == "db-0" {
				return apierrors.NewInternalError(errors.New("etcd"))
			}
			return nil
		}, true, database(2))
		got := s.run("restart", "logs", "--timeout=1m")
		require.EqualError(t, got.err, "1 eviction failed: evict pod default/db-0: Internal error occurred: etcd")
		assert.Contains(t, got.out, "evict pod default/db-0: Internal error occurred: etcd\nevicted default/db-1: ")
		assert.Contains(t, got.out, "sidecarset/logs: 1 evicted, ")
	})
}

func TestTheTimeoutOfRestartHidesNoOtherResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := evictable(t, func(string) error { return nil }, false, database(2))
		require.EqualError(t, s.run("restart", "logs", "--timeout=1s").err,
			"not all pods of SidecarSet logs are recreated after 1s: statefulset/db in default has 1 of 2 ready pods", "before the second read")
	})
	synctest.Test(t, func(t *testing.T) {
		s := evictable(t, func(string) error {
			time.Sleep(time.Hour)
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "db-0", errors.New("no right"))
		}, false, database(2))
		require.ErrorContains(t, s.run("restart", "logs", "--timeout=1m").err, "2 evictions failed: evict pod default/db-0: not allowed: ")
	})
}
