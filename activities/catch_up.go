package activities

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
)

// catchUpTime is how long a cache is waited for: while pods move it is rarely behind for as
// long, and while none do no event says that it is not.
const catchUpTime = 300 * time.Millisecond

// acquireLease makes the run the one that upgrades pods. In the place of another,
// it first has the cache show whatever that one may have written; so it does when
// an attempt before was lost, perhaps on taking over.
func (b *upgradeBatch) acquireLease(ctx context.Context, attempt int32) error {
	if attempt == 1 {
		return b.fence.lease.acquire(ctx, b.awaitWritesOfOthers)
	}
	if err := b.fence.lease.acquire(ctx, func(context.Context) error { return nil }); err != nil {
		return err
	}
	return b.awaitWritesOfOthers(ctx)
}

// awaitWritesOfOthers has the cache show them before the batch plans. A cache that is only
// moments behind is waited for. Of another one, the API server's list says which pods it
// does not show.
func (b *upgradeBatch) awaitWritesOfOthers(ctx context.Context) (err error) {
	if b.current, err = b.cacheCatchesUp(ctx); err != nil || b.current {
		return err
	}
	set, err := b.reader.set(ctx, b.input.SidecarSet)
	if err != nil || set == nil {
		return err
	}
	pods, err := b.reader.livePods(ctx, set)
	if err != nil {
		return err
	}
	b.listed = make(map[protocol.PodReference]string, len(pods))
	for _, pod := range pods {
		b.listed[pod.PodReference] = pod.ResourceVersion
	}
	b.before.add(pods)
	return nil
}

// cacheCatchesUp waits for the cache to show what the API server has now, catchUpTime at
// most.
func (b *upgradeBatch) cacheCatchesUp(ctx context.Context) (bool, error) {
	version, err := b.reader.podsVersion(ctx)
	if err != nil || version == "" {
		return false, err
	}
	return b.poller.await(ctx, b.input.SidecarSet.Name, catchUpTime, func() (bool, error) { return b.reader.index.Shows(version) })
}

// catchUp finds out what an attempt before this one has done, from the API
// server, or from the cache where that is not behind. What that one may still have
// on the wire comes first in what is left. Pods of a generation that was left are
// all taken for written.
func (b *upgradeBatch) catchUp(ctx context.Context) error {
	looks, looking := newPool(ctx, b.writers, errStopping)
	for _, chosen := range b.left {
		looks.submit(looking, func(ctx context.Context) error { return b.catchUpPod(ctx, chosen.PodReference) })
	}
	err := looks.wait()
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
	set, stopped, err := b.fence.check(ctx)
	if err != nil {
		return err
	}
	pod, err := b.recentPod(ctx, reference)
	if err != nil || pod == nil {
		return err
	}
	if stopped == "" {
		state, _, err := b.reader.state(ctx, set, pod)
		if err != nil || !state.Updated {
			return err
		}
	}
	b.outcome.wrote(reference, pod.ResourceVersion)
	return nil
}

// recentPod is a pod not older than when the cache was current, or the pod was listed.
// Thousands of reads would keep the rollout waiting for seconds.
func (b *upgradeBatch) recentPod(ctx context.Context, reference protocol.PodReference) (*corev1.Pod, error) {
	if b.current {
		return b.reader.cachedPod(ctx, reference)
	}
	if version, ok := b.listed[reference]; ok {
		pod, err := b.reader.cachedPod(ctx, reference)
		if err != nil || pod != nil && pod.ResourceVersion == version {
			return pod, err
		}
	}
	return b.reader.livePod(ctx, reference)
}
