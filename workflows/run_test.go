package workflows

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
)

// While no worker polls for write tasks, signals cancel several batches in sequence.
func TestPodsOfManyCancelledBatchesHaveOneEntryEach(t *testing.T) {
	pod := func(name, version string) protocol.WrittenPod {
		return protocol.WrittenPod{PodReference: protocol.PodReference{Name: name, UID: types.UID(name)}, ResourceVersion: version}
	}
	r := &run{progress: protocol.Progress{Written: []protocol.WrittenPod{pod("a", "7"), pod("b", "8")}}}
	for range 3 {
		r.written([]protocol.WrittenPod{pod("b", ""), pod("c", "")})
	}
	assert.Equal(t, []protocol.WrittenPod{pod("a", "7"), pod("b", ""), pod("c", "")}, r.progress.Written)
}
