package operator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Without the right to patch its Lease, the operator logs and queries rarely.
func TestSpec8_10_AReportIsRetriedRarelyWithoutTheRight(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, "outrigger-operator", errors.New("no right"))
	assert.Equal(t, time.Minute, retryInterval(fmt.Errorf("patch Lease: %w", forbidden)))
	assert.Equal(t, 2*time.Second, retryInterval(errors.New("connection refused")))
}
