package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestAnAbortedRolloutHasNotFailed(t *testing.T) {
	for reason, want := range map[string][2]string{
		"aborted":                  {"the rollout was aborted, and its pods go back to revision logs-1", "the rollout was aborted, and its pods went back to revision logs-1"},
		"aborted from admin":       {"the rollout was aborted by admin, and its pods go back to revision logs-1", "the rollout was aborted by admin, and its pods went back to revision logs-1"},
		"aborted from ann: errors": {"the rollout was aborted by ann, and its pods go back to revision logs-1: errors", "the rollout was aborted by ann, and its pods went back to revision logs-1: errors"},
		"3 pods failed":            {"the content failed, and its pods go back to revision logs-1: 3 pods failed", "the content failed, and its pods went back to revision logs-1: 3 pods failed"},
	} {
		quarantine := &v1alpha1.RolloutQuarantine{Revision: "logs-1", Reason: reason}
		assert.Equal(t, want, [2]string{rolledBack(quarantine, false), rolledBack(quarantine, true)})
	}
}
