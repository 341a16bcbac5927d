package workflows

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
)

func prints(pods ...protocol.PodReference) (all protocol.Fingerprints) {
	for _, pod := range pods {
		all = append(all, protocol.FingerprintOf(pod.UID))
	}
	return all
}

func numbered(from, to int) (pods []protocol.PodReference, failed []protocol.RejectedPod) {
	for i := from; i < to; i++ {
		pod := protocol.PodReference{Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("uid-", i))}
		pods, failed = append(pods, pod), append(failed, protocol.RejectedPod{PodReference: pod, Reason: "Forbidden"})
	}
	return pods, failed
}

func TestSpec7_8_TenThousandRejectedPodsAreRetriedWithBackoff(t *testing.T) {
	const all = 10_000
	now := time.Unix(1000, 0)
	r := rejections{&protocol.Rejections{}}
	pods, failed := numbered(0, all)
	byPrint := map[protocol.Fingerprint]int{}
	for i, print := range prints(pods...) {
		byPrint[print] = i
	}
	require.Len(t, byPrint, all)
	for first := range slices.Chunk(failed, 1000) {
		assert.False(t, r.record(now, nil, first), "no pod waits for its first try")
	}
	tries, rounds := map[protocol.Fingerprint]int{}, 0
	for end := now.Add(10 * time.Minute); ; rounds++ {
		if now = now.Add(r.left(now, time.Hour)); now.After(end) {
			break
		}
		asked := r.asked(now)
		var again []protocol.RejectedPod
		for _, print := range asked.Pods[:asked.Again] {
			tries[print]++
			again = append(again, failed[byPrint[print]])
		}
		assert.True(t, r.record(now, nil, again))
	}
	assert.InDelta(t, 9, rounds, 1, "in ten minutes")
	assert.Len(t, tries, rounds*maxRetried, "each in its turn")
	assert.Len(t, r.Pods, all)
	text, err := json.Marshal(r.Rejections)
	require.NoError(t, err)
	assert.Less(t, len(text), 64<<10)
	var read protocol.Rejections
	require.NoError(t, json.Unmarshal(text, &read))
	assert.Equal(t, r.Pods, read.Pods)
}

func TestSpec7_8_OnePodThatIsAcceptedAfterAllHasTheOthersTriedAtOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	r := rejections{&protocol.Rejections{}}
	pods, failed := numbered(0, 3)
	r.record(now, nil, failed)
	assert.True(t, r.record(now, nil, failed))
	assert.Equal(t, 2*minBackoff, r.left(now, time.Hour))
	assert.False(t, r.record(now, pods[:1], failed[1:]))
	assert.Equal(t, protocol.Rejected{Pods: prints(pods[1:]...), Again: 2}, r.asked(now))
	r.forget(prints(pods[1]))
	assert.Equal(t, prints(pods[2]), r.Pods)
	r.record(now, pods[2:], nil)
	assert.Equal(t, protocol.Rejections{Pods: r.Pods[:0]}, *r.Rejections, "nothing is left of it")
}

func TestARunThatCannotRememberAllRejectedPodsPauses(t *testing.T) {
	now := time.Unix(1000, 0)
	r := rejections{&protocol.Rejections{}}
	_, failed := numbered(0, maxRejected+10)
	assert.False(t, r.record(now, nil, failed[:maxRejected]))
	assert.True(t, r.record(now, nil, failed[maxRejected:]))
	assert.Len(t, r.Pods, maxRejected)
}

// The resize of the pod was written, but another component has reverted the resize.
func TestSpec7_9_AWriteThatDoesNotLastKeepsTheBackoff(t *testing.T) {
	now := time.Unix(1000, 0)
	r := rejections{&protocol.Rejections{}}
	pods, failed := numbered(0, 1)
	r.record(now, pods, failed)
	for range 3 {
		before := r.Backoff
		assert.True(t, r.record(now, pods, failed))
		assert.Greater(t, r.Backoff, before)
	}
	assert.Len(t, r.Pods, 1)
}
