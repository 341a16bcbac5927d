package activities

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestABatchCountsPodsByResult(t *testing.T) {
	cluster := newTestCluster(t, interceptor.Funcs{
		Patch: func(ctx context.Context, server client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if o.GetName() == "rejected" {
				return apierrors.NewForbidden(corev1.Resource("pods"), o.GetName(), nil)
			}
			return server.Patch(ctx, o, patch, options...)
		},
	}, webSet(4), webPod("rejected"), webPod("written"))
	b := cluster.batchOf("rejected", "written")
	gone := selectedPods("gone")
	require.NoError(t, inActivity(t, nil, func(ctx context.Context) error {
		pool, _ := newPool(ctx, 2)
		b.pool = pool
		b.upgrade(append(b.left, gone...))
		return pool.wait()
	}))
	count := func(change string, v podResult) float64 {
		return testutil.ToFloat64(cluster.Metrics.pods.WithLabelValues(change, string(v)))
	}
	for _, v := range []podResult{resultWritten, resultRejected, resultSkipped} {
		assert.InDelta(t, 1, count(changeUpgrade, v), 0, v)
		assert.Zero(t, count(changeReset, v), v)
	}
}

func TestABatchIsTimed(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	_, clock := newActivities(t, interceptor.Funcs{})
	end := metrics.time(changeReset, clock)
	clock.Step(heartbeatInterval)
	end()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if !strings.HasSuffix(family.GetName(), "_seconds") {
			continue
		}
		for _, one := range family.GetMetric() {
			if one.GetLabel()[0].GetValue() == changeReset {
				assert.InDelta(t, heartbeatInterval.Seconds(), one.GetHistogram().GetSampleSum(), 0)
				return
			}
		}
	}
	assert.Fail(t, "no such series")
}
