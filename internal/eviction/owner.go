package eviction

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/podstate"
)

// OwnerOf returns the owner of a pod: the controller of the pod, or the Deployment of its ReplicaSet. The
// owner of a pod without a controller has the name of the pod and no kind.
func OwnerOf(pod *corev1.Pod) protocol.Owner {
	kind, name := podstate.Owner(pod)
	return protocol.Owner{Namespace: pod.Namespace, Kind: kind, Name: cmp.Or(name, pod.Name)}
}

// owner contains the pods of one owner. Unready pods are first.
type owner struct {
	protocol.Owner
	key  string
	pods []*Pod
}

// ownersOf returns the owners, sorted by name.
func ownersOf(pods []Pod) []*owner {
	byKey := map[protocol.Owner]*owner{}
	var owners []*owner
	for i := range pods {
		key := OwnerOf(pods[i].Pod)
		of := byKey[key]
		if of == nil {
			of = &owner{Owner: key, key: key.String()}
			byKey[key] = of
			owners = append(owners, of)
		}
		of.pods = append(of.pods, &pods[i])
	}
	slices.SortFunc(owners, func(a, b *owner) int { return cmp.Compare(a.key, b.key) })
	return owners
}

// order sorts the pods of each owner in the order of eviction: first the unready pods, and then the ready pods.
// The order in each of these two groups is round-robin by name, and begins after the pod whose eviction was
// rejected last. order removes the rejected pods that do not affect the order from the state.
func (p *planner) order() {
	var last [2]map[*owner]string // indexed by rank
	last[0], p.State.RejectedUnready = lastRejected(p.owners, p.State.RejectedUnready)
	last[1], p.State.RejectedReady = lastRejected(p.owners, p.State.RejectedReady)
	for _, of := range p.owners {
		round := func(pod *Pod) int {
			if pod.Name <= last[rank(pod)][of] {
				return 1
			}
			return 0
		}
		slices.SortFunc(of.pods, func(a, b *Pod) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(round(a), round(b)), strings.Compare(a.Name, b.Name))
		})
	}
}

// maxRejectedPods limits the size of the state. If the pod of an owner is removed from the state, the evictions
// of this owner begin again with its first pod.
const maxRejectedPods = 20_000

// lastRejected returns, for each owner, the name of the outdated pod whose eviction was rejected last. kept
// contains the fingerprints of these pods. In rejected and in kept, the oldest rejection is first.
func lastRejected(owners []*owner, rejected protocol.Fingerprints) (last map[*owner]string, kept protocol.Fingerprints) {
	at := make(map[protocol.Fingerprint]int, len(rejected))
	for i, pod := range rejected {
		at[pod] = i
	}
	last = map[*owner]string{}
	var found []int
	for _, of := range owners {
		newest := -1
		for _, pod := range of.pods {
			if i, known := at[protocol.FingerprintOf(pod.UID)]; known && i > newest && len(pod.Outdated) > 0 {
				newest, last[of] = i, pod.Name
			}
		}
		if newest >= 0 {
			found = append(found, newest)
		}
	}
	slices.Sort(found)
	for _, i := range slices.Compact(found) {
		kept = append(kept, rejected[i])
	}
	return last, kept[max(len(kept)-maxRejectedPods, 0):]
}

// rank orders unready pods before ready pods.
func rank(pod *Pod) int {
	if pod.Ready {
		return 1
	}
	return 0
}

// recreates reports whether the controller of a pod replaces the pod after an eviction, without a loss of work.
// A pod that runs to completion, such as a pod of a Job, would repeat its work. recreates reads the restart
// policy of each pod, because the pods of one custom resource may have different restart policies. The eviction
// of a mirror pod, whose controller is a Node, does not recreate the static pod.
func (o *owner) recreates(pod *Pod) bool {
	switch pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure:
		return false
	}
	return o.Kind != "" && o.Kind != "Job" && o.Kind != "Node"
}

// healthy reports whether all pods of the owner are ready.
func (o *owner) healthy() bool { return o.pods[0].Ready }

// outdated reports whether the pod has to be recreated for a SidecarSet.
func (pod *Pod) outdated(set string) bool { return slices.Contains(pod.Outdated, set) }

// good returns the number of pods of the owner with the newest content of a SidecarSet. newer is the number of
// these pods whose creationTimestamp is later than after. If ready is set, unready pods are not counted.
func (o *owner) good(set string, ready bool, after time.Time) (good, newer int) {
	for _, pod := range o.pods {
		if pod.outdated(set) || ready && !pod.Ready {
			continue
		}
		good++
		if pod.CreationTimestamp.After(after) {
			newer++
		}
	}
	return good, newer
}

// worse returns a replacement that is outdated, too, or nil. A creationTimestamp has a resolution of one
// second, so a replacement may have the creationTimestamp of the newest existing pod. Therefore, worse also
// returns a pod if the owner has more outdated pods than e.Others, without the evicted pods.
func (o *owner) worse(e *protocol.Eviction) *Pod {
	var found *Pod
	n := 0
	for _, pod := range o.pods {
		if !pod.outdated(e.SidecarSet.Name) || contains(e.Pods, pod.UID) {
			continue
		}
		if n++; found == nil || pod.CreationTimestamp.After(found.CreationTimestamp.Time) {
			found = pod
		}
	}
	if n > e.Others || found != nil && found.CreationTimestamp.After(e.Newest) {
		return found
	}
	return nil
}

// newest returns the creation time of the newest pod of the owner.
func (o *owner) newest() (at time.Time) {
	for _, pod := range o.pods {
		if pod.CreationTimestamp.After(at) {
			at = pod.CreationTimestamp.Time
		}
	}
	return at
}

func contains(pods []protocol.WrittenPod, uid types.UID) bool {
	return slices.ContainsFunc(pods, func(pod protocol.WrittenPod) bool { return pod.UID == uid })
}
