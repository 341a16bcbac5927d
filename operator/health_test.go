package operator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/operator/runs"
)

// Without the permission to patch the Lease, the operator retries only once per forbiddenInterval.
func TestSpec8_10_AReportIsRetriedRarelyWithoutTheRight(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "outrigger-operator", errors.New("no right"))
	assert.Equal(t, time.Minute, retryInterval(fmt.Errorf("patch Lease: %w", forbidden)))
	assert.Equal(t, time.Second, retryInterval(errors.New("connection refused")))
}

// A failed query does not show the state of the workers, so a reported fault stays.
func TestSpec8_10_AQueryThatFailsIsNoReport(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	silent := runs.Fault{Reason: v1alpha1.ReasonWorkerUnavailable, Message: "no worker polls"}
	refused := errors.New("connection refused")
	down := runs.Fault{Reason: v1alpha1.ReasonTemporalUnavailable, Message: refused.Error()}
	h := &health{}
	for _, c := range []struct {
		name             string
		workers          runs.Fault
		err, unavailable error
		after            time.Duration
		want             runs.Fault
		known            bool
	}{
		{name: "the workers respond", known: true},
		{name: "they do not", workers: silent, want: silent, known: true},
		{name: "Temporal rejects the query", err: errors.New("permission denied")},
		{name: "Temporal does not respond", err: refused, unavailable: refused, want: down, known: true},
		{name: "the workers connect again", workers: silent, after: reconnectTime - time.Second, known: true},
		{name: "they do not connect", workers: silent, after: reconnectTime, want: silent, known: true},
	} {
		found, known := h.judge(c.workers, c.err, c.unavailable, now.Add(c.after))
		assert.Equal(t, c.want, found, c.name)
		assert.Equal(t, c.known, known, c.name)
	}
}
