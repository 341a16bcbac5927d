package operator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/operator/runs"
)

// Without permission to patch the Lease, the operator retries only once per forbiddenInterval.
func TestSpec8_10_AReportIsRetriedRarelyWithoutTheRight(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "outrigger-operator", errors.New("no right"))
	assert.Equal(t, time.Minute, retryInterval(fmt.Errorf("patch Lease: %w", forbidden)))
	assert.Equal(t, time.Second, retryInterval(errors.New("connection refused")))
}

// A failed query does not show the state of the workers, so the report does not change.
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

// The former leader may have reported an outage of Temporal. The frontend responds again, but calls that list
// runs still fail.
func TestSpec8_10_AReportedOutageEndsOnceTheProbeSucceeds(t *testing.T) {
	for fault, kept := range map[string]bool{
		v1alpha1.ReasonTemporalUnavailable + ": Temporal does not respond": false,
		v1alpha1.ReasonWorkerUnavailable + ": no worker polls":             true,
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Namespace: "kruise-system", Name: name, Annotations: map[string]string{v1alpha1.FaultAnnotation: fault},
		}}
		scheme, err := kube.NewScheme()
		require.NoError(t, err)
		direct := fake.NewClientBuilder().WithScheme(scheme).WithObjects(lease).Build()
		var o Options
		o.SystemNamespace = lease.Namespace
		h := newHealth(direct, newSlowEnv(t).runStep.client, o)
		h.check(t.Context())
		require.NoError(t, direct.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
		_, found := lease.Annotations[v1alpha1.FaultAnnotation]
		assert.Equal(t, kept, found, fault)
	}
}
