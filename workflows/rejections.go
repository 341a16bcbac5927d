package workflows

import (
	"time"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// maxRejected limits the rejected pods that a run stores. The fingerprints of these pods need up to 64 KiB in
	// each payload.
	maxRejected = 16384
	// maxRetried limits the rejected pods that are retried at a time.
	maxRetried = 200
	// Rejected pods are retried after a backoff. The backoff doubles if pods are rejected again and no retried
	// write is accepted.
	minBackoff = 2 * time.Second
	maxBackoff = 10 * time.Minute
)

// rejections are the pods whose upgrade was rejected, or the pods whose condition was rejected.
type rejections struct{ *protocol.Rejections }

// due reports whether pods were rejected and the backoff has expired.
func (r rejections) due(now time.Time) bool { return len(r.Pods) > 0 && !now.Before(r.RetryAt) }

// left returns the time until the backoff expires, and at most atMost. Without rejected pods, left returns
// atMost.
func (r rejections) left(now time.Time, atMost time.Duration) time.Duration {
	if len(r.Pods) == 0 {
		return atMost
	}
	return min(r.RetryAt.Sub(now), atMost)
}

// asked returns the rejected pods, and the number of these pods to retry now, as input of an activity.
func (r rejections) asked(now time.Time) protocol.Rejected {
	rejected := protocol.Rejected{Pods: r.Pods}
	if r.due(now) {
		rejected.Again = min(len(r.Pods), maxRetried)
	}
	return rejected
}

// forget removes pods that are gone, or that no longer need the write.
func (r rejections) forget(gone protocol.Fingerprints) {
	r.Pods = r.Pods.Without(gone.Set())
	r.resetBackoff()
}

// resetBackoff clears the backoff once no pod is left.
func (r rejections) resetBackoff() {
	if len(r.Pods) == 0 {
		r.Backoff, r.RetryAt = 0, time.Time{}
	}
}

// record adds the result of a batch. again is true if the batch made no progress: pods were rejected again,
// or the list was full and further pods were rejected, and no write to a previously rejected pod was
// accepted.
func (r rejections) record(now time.Time, written []protocol.PodReference, failed []protocol.RejectedPod) (again bool) {
	known, full := r.Pods.Set(), len(r.Pods) == maxRejected
	accepted, tried := false, map[protocol.Fingerprint]bool{}
	var rejected protocol.Fingerprints
	for _, pod := range failed {
		print := protocol.FingerprintOf(pod.UID)
		tried[print] = true
		rejected = append(rejected, print)
		again = again || known[print]
	}
	for _, pod := range written {
		print := protocol.FingerprintOf(pod.UID)
		// A pod that is both written and rejected was resized, but another component has reverted the resize.
		accepted = accepted || known[print] && !tried[print]
		tried[print] = true
	}
	r.Pods = append(r.Pods.Without(tried), rejected...)
	r.Pods = r.Pods[max(len(r.Pods)-maxRejected, 0):]
	// If the list of rejected pods is full, rejections of further pods also cause a backoff.
	again = (again || full && len(rejected) > 0) && !accepted
	switch {
	case accepted:
		r.Backoff, r.RetryAt = 0, now
	case again, len(known) == 0 && len(rejected) > 0:
		r.Backoff = doubled(r.Backoff)
		r.RetryAt = now.Add(r.Backoff)
	}
	r.resetBackoff()
	return again
}

func doubled(backoff time.Duration) time.Duration { return min(max(2*backoff, minBackoff), maxBackoff) }
