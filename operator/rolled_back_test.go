package operator

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

func TestAnAbortedRolloutHasNotFailed(t *testing.T) {
	for reason, want := range map[string][2]string{
		"ann aborted the rollout of generation 3: errors": {
			"the pods are being rolled back to revision logs-1: ann aborted the rollout of generation 3: errors", "the pods were rolled back to revision logs-1: ann aborted the rollout of generation 3: errors",
		},
		"3 pods failed": {"the pods are being rolled back to revision logs-1: 3 pods failed", "the pods were rolled back to revision logs-1: 3 pods failed"},
	} {
		quarantine := &v1alpha1.RolloutQuarantine{Revision: "logs-1", Reason: reason}
		assert.Equal(t, want, [2]string{rolledBack(quarantine, false), rolledBack(quarantine, true)})
	}
}
