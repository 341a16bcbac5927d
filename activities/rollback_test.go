package activities

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/protocol"
)

// A starting API server rejects the reads of all users until its cache of roles is filled. Such a rejection must
// not replace a rollback with a pause.
func TestSpec11_12_AForbiddenRevisionIsReadAgain(t *testing.T) {
	forbidden := apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), "logs-1", errors.New("no role"))
	unavailable := apierrors.NewServiceUnavailable("starting")
	for name, test := range map[string]struct {
		after time.Duration
		then  error
		final bool
	}{
		"the API server starts": {forbiddenTime / 2, unavailable, false}, "no permission": {2 * forbiddenTime, unavailable, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				cluster := newTestCluster(t, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, ok := object.(*appsv1.ControllerRevision); !ok {
						return c.Get(ctx, key, object, options...)
					}
					if time.Since(began) < test.after {
						return forbidden
					}
					return test.then
				}}, webSet(9))
				cluster.Clock = clock.RealClock{}
				failure := &protocol.Failure{Reason: "2 pods failed", Quarantine: &protocol.Quarantine{Revision: "logs-1"}}
				err := cluster.checkRollback(t.Context(), webSet(9), failure)
				if !test.final {
					require.ErrorIs(t, err, test.then)
					assert.NotNil(t, failure.Quarantine)
					return
				}
				require.NoError(t, err)
				assert.Nil(t, failure.Quarantine)
				assert.Contains(t, failure.Reason, "2 pods failed; it cannot be rolled back: ")
			})
		})
	}
}
