package activities

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
)

// queuedPods are the pods of a batch that are next in order when a slot becomes free. After a rejected write,
// the first queued pod takes the slot immediately. Without queued pods, each of thousands of rejected pods would
// need a plan.
type queuedPods struct {
	mu      sync.Mutex
	pods    []protocol.SelectedPod
	started []protocol.SelectedPod
	ended   bool
}

func (s *queuedPods) next() (next protocol.SelectedPod, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.pods) == 0 {
		return next, false
	}
	next, s.pods = s.pods[0], s.pods[1:]
	s.started = append(s.started, next)
	return next, true
}

// end makes further calls of next return no pod, and returns the pods that next has returned.
func (s *queuedPods) end() []protocol.SelectedPod {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return s.started
}

// endQueued records the queued pods that were tried in the slots of rejected pods, and removes these pods
// from left.
func (b *upgradeBatch) endQueued() {
	for _, one := range b.queued.end() {
		b.try(one)
	}
	b.left = slices.DeleteFunc(b.left, func(pod protocol.SelectedPod) bool {
		_, tried := b.isTried[pod.PodReference]
		return tried
	})
	b.queued = &queuedPods{}
}

// upgradeInSlot upgrades a pod. If the write is rejected, upgradeInSlot upgrades the next queued pod in the
// same slot.
func (b *upgradeBatch) upgradeInSlot(ctx context.Context, one protocol.SelectedPod, queued *queuedPods) error {
	for {
		decide := func(ctx context.Context, pod *corev1.Pod) (decision, error) { return b.decide(ctx, one, pod) }
		result, err := b.apply(ctx, one.PodReference, &b.outcome, change{wanted: b.wanted, decide: decide, write: b.patchPod})
		if err != nil {
			return err
		}
		b.outcome.release(one.PodReference)
		if result != resultRejected {
			return nil
		}
		if one.Unready || b.outcome.isWritten(one.PodReference) {
			return nil // an unready pod takes no slot, and a resized pod keeps the slot
		}
		next, ok := queued.next()
		if !ok {
			// No event reports that the slot is free, so the batch is woken here.
			b.Changes.wake(b.input.SidecarSet.Name)
			return nil
		}
		one = next
	}
}
