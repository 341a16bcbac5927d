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

// OwnerOf returns the owner of a pod: its controller, or the Deployment of its ReplicaSet. A pod without
// a controller has an owner of its own, without a kind.
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
	for _, of := range owners {
		slices.SortFunc(of.pods, func(a, b *Pod) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
		})
	}
	return owners
}

// rank orders unready pods before ready ones.
func rank(pod *Pod) int {
	if pod.Ready {
		return 1
	}
	return 0
}

// recreates reports whether the controller creates another pod after an eviction, and the eviction
// loses no work. Pods that end by themselves, as those of Jobs, would start their work again. A node
// does not recreate the mirror of a static pod.
func (o *owner) recreates() bool {
	switch o.pods[0].Spec.RestartPolicy {
	case corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure:
		return false
	}
	return o.Kind != "" && o.Kind != "Job" && o.Kind != "Node"
}

// healthy reports whether all pods of the owner are ready.
func (o *owner) healthy() bool { return o.pods[0].Ready }

// outdated reports whether the pod has to be recreated for a SidecarSet.
func (pod *Pod) outdated(set string) bool { return slices.Contains(pod.Outdated, set) }

// good counts the pods of the owner with the newest content of a SidecarSet. newer counts the pods among
// them that were created after a time of the API server. With ready, unready pods do not count.
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

// worse returns a pod that has replaced an evicted pod, and that has to be recreated, too. Times of
// the API server are whole seconds, so that a replacement may be as old as the newest other pod. It
// then increases the number of pods that have to be recreated.
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

// newest returns the time at which the newest pod of the owner was created.
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
