package activities

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
)

// catchUpTime is the maximum time that a batch waits for the cache before the batch lists the pods from the API
// server. While pods change, the cache is rarely stale for longer. While no pod changes, no event shows that the
// cache is current.
const catchUpTime = 300 * time.Millisecond

// acquireLease acquires the Lease for the run. If another run was the holder of the Lease, or an earlier
// attempt of the activity was lost, acquireLease also calls awaitWritesOfOthers, because the cache may not
// show the writes of the other run or attempt yet.
func (b *upgradeBatch) acquireLease(ctx context.Context, attempt int32) error {
	if attempt == 1 {
		return b.fence.lease.acquire(ctx, b.awaitWritesOfOthers)
	}
	if err := b.fence.lease.acquire(ctx, func(context.Context) error { return nil }); err != nil {
		return err
	}
	return b.awaitWritesOfOthers(ctx)
}

// awaitWritesOfOthers waits, for at most catchUpTime, until the cache shows the writes of other processes. If the
// cache is still stale, awaitWritesOfOthers lists the pods from the API server, and adds the pods to before as
// unseen writes.
func (b *upgradeBatch) awaitWritesOfOthers(ctx context.Context) error {
	current, listed, err := b.writesOfOthers(ctx, b.input.SidecarSet)
	if b.cacheCurrent = current; err != nil || current {
		return err
	}
	b.listed = make(map[protocol.PodReference]string, len(listed))
	for _, pod := range listed {
		b.listed[pod.PodReference] = pod.ResourceVersion
	}
	b.before.add(listed)
	return nil
}

// writesOfOthers waits, for at most catchUpTime, until the cache shows the current state of the API server. If
// the cache is still stale, writesOfOthers lists the pods of a SidecarSet from the API server. The list contains
// the resourceVersions that the cache may not show yet. current reports whether the cache shows the current
// state.
func (a *Activities) writesOfOthers(ctx context.Context, reference protocol.SetReference) (current bool, listed []protocol.WrittenPod, err error) {
	version, err := a.podsVersion(ctx)
	if err == nil && version != "" {
		current, err = a.await(ctx, reference.Name, catchUpTime, func() (bool, error) { return a.Index.Shows(version) })
	}
	if err != nil || current {
		return current, nil, err
	}
	set, err := a.liveSet(ctx, reference)
	if err != nil || set == nil {
		return false, nil, err
	}
	listed, err = a.livePods(ctx, set)
	return false, listed, err
}

// catchUp finds the pods that an earlier attempt has written. catchUp reads a pod from the cache if the cache is
// current, and otherwise from the API server. If the fence returns no SidecarSet, for example for a superseded
// generation, catchUp cannot compare a pod with the content of the earlier attempt. All existing pods of the
// batch then count as written.
func (b *upgradeBatch) catchUp(ctx context.Context) error {
	reads, _ := newPool(ctx, b.Writers)
	for _, chosen := range b.left {
		reads.submit(func(ctx context.Context) error { return b.catchUpPod(ctx, chosen.PodReference) })
	}
	err := reads.wait()
	done := func(chosen protocol.SelectedPod) bool {
		_, done := b.outcome.written[chosen.PodReference]
		return done
	}
	for _, chosen := range b.left {
		if done(chosen) {
			b.try(chosen)
		}
	}
	b.left = slices.DeleteFunc(b.left, done)
	return err
}

func (b *upgradeBatch) catchUpPod(ctx context.Context, reference protocol.PodReference) error {
	set, err := b.fence.check(ctx)
	var superseded stopped
	if err != nil && !errors.As(err, &superseded) {
		return err
	}
	pod, err := b.recentPod(ctx, reference)
	if err != nil || pod == nil {
		return err
	}
	if set == nil {
		// The earlier attempt may or may not have written the pod, so catchUpPod records an uncertain write.
		b.outcome.wrote(reference, "")
		return nil
	}
	state, _, err := b.state(ctx, set, pod)
	if err != nil || !state.Updated {
		return err
	}
	b.outcome.wrote(reference, pod.ResourceVersion)
	return nil
}

// recentPod returns a pod, or nil if the pod is gone. The pod is no older than the last call of
// awaitWritesOfOthers. recentPod reads from the API server only if the cached pod may be stale, because thousands
// of reads from the API server would delay the rollout by seconds.
func (b *upgradeBatch) recentPod(ctx context.Context, reference protocol.PodReference) (*corev1.Pod, error) {
	if b.cacheCurrent {
		return readPod(ctx, b.Cache, reference)
	}
	if version, ok := b.listed[reference]; ok {
		pod, err := readPod(ctx, b.Cache, reference)
		if err != nil || pod != nil && pod.ResourceVersion == version {
			return pod, err
		}
	}
	return readPod(ctx, b.Live, reference)
}
