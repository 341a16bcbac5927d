package operator

import (
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// permitOf returns the permit of the run of the generation, or nil.
func permitOf(p *pass) *protocol.Permit {
	if p.run.GenerationMismatch(p.set) {
		return nil
	}
	return p.run.Permit
}

// recordPermit copies the permit of the run to status, so that the permit remains known if the run is lost
// (SPEC 12.5.3). recordPermit ignores a permit for other content.
func recordPermit(p *pass) {
	permit := p.out.permit
	if permit == nil || !rolloutStarted(p.set) || permit.Hash != p.set.Annotations[v1alpha1.HashAnnotation] {
		return
	}
	p.set.Status.Rollout.Permit = permit.String()
}
