package activities

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
)

// A starting API server rejects the reads of all users until its cache of roles is filled. Such an answer must
// not replace a rollback with a pause.
func TestSpec11_12_AForbiddenRevisionIsReadAgain(t *testing.T) {
	forbidden := apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), "logs-1", errors.New("no role"))
	cluster := newTestCluster(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
		if _, ok := object.(*appsv1.ControllerRevision); ok {
			return forbidden
		}
		return c.Get(ctx, key, object, options...)
	}}, webSet(9))
	for attempt, final := range map[int32]bool{1: false, forbiddenAttempts - 1: false, forbiddenAttempts: true} {
		failure := &protocol.Failure{Reason: "2 pods failed", Quarantine: &protocol.Quarantine{Revision: "logs-1"}}
		err := cluster.checkRollback(t.Context(), webSet(9), failure, attempt)
		if !final {
			require.ErrorIs(t, err, forbidden)
			assert.NotNil(t, failure.Quarantine, attempt)
			continue
		}
		require.NoError(t, err)
		assert.Nil(t, failure.Quarantine, attempt)
		assert.Contains(t, failure.Reason, "2 pods failed; it cannot be rolled back: ")
	}
}
