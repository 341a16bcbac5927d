package operator

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/operator/runs"
)

// pass is one reconcile of a SidecarSet: what its steps read, find and decide.
type pass struct {
	// before is the SidecarSet at the start. The steps write the status of set. The
	// content of both is completed.
	before, set *v1alpha1.SidecarSet
	pods        []*corev1.Pod
	now         time.Time
	observation
	// state remembers the run from one pass to the next.
	state *runState
	// run is the newest run, once it is read.
	run *runs.Run
	out outcome

	// result is that of the reconcile. No step follows once ended is set.
	result reconcile.Result
	ended  bool
}

// end ends the pass, and requeues the SidecarSet.
func (p *pass) end(requeueAfter time.Duration) {
	p.ended, p.result.RequeueAfter = true, requeueAfter
}
