package kube

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// internLimit is how many values of a kind are remembered before all are forgotten and
// remembered anew: what objects share stays shared, and what has gone is freed.
const internLimit = 1 << 12

// longestShared is the longest value of an annotation that is shared, in bytes: each may
// be remembered for longer than its object.
const longestShared = 1 << 10

// interner has cached objects share what they have in common: the pods of one workload
// differ in little. Shared values must not be changed, like all that is cached. It is safe
// for concurrent use.
type interner struct {
	seed maphash.Seed

	mu           sync.Mutex
	texts        map[string]string
	labelMaps    map[uint64]map[string]string
	containerSet map[uint64][]corev1.Container
}

func newInterner() *interner {
	return &interner{
		seed: maphash.MakeSeed(), texts: map[string]string{},
		labelMaps: map[uint64]map[string]string{}, containerSet: map[uint64][]corev1.Container{},
	}
}

func (n *interner) text(value string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.share(value)
}

// share needs the lock.
func (n *interner) share(value string) string {
	if known, ok := n.texts[value]; ok {
		return known
	}
	makeRoom(n.texts)
	n.texts[value] = value
	return value
}

func makeRoom[K comparable, V any](known map[K]V) {
	if len(known) >= internLimit {
		clear(known)
	}
}

// annotations returns a map of the object's own with shared keys and values: pods that are
// written in one second have the same record.
func (n *interner) annotations(own map[string]string) map[string]string {
	if own == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := make(map[string]string, len(own))
	for key, value := range own {
		if len(value) <= longestShared {
			value = n.share(value)
		}
		kept[n.share(key)] = value
	}
	return kept
}

// labels returns a map that all objects with the same labels share.
func (n *interner) labels(own map[string]string) map[string]string {
	if own == nil {
		return nil
	}
	var hash uint64
	for key, value := range own {
		hash += maphash.Comparable(n.seed, [2]string{key, value})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.labelMaps[hash]; ok && maps.Equal(known, own) {
		return known
	}
	kept := make(map[string]string, len(own))
	for key, value := range own {
		kept[n.share(key)] = n.share(value)
	}
	makeRoom(n.labelMaps)
	n.labelMaps[hash] = kept
	return kept
}

// containers returns the names, images and restart policies of containers, which all
// pods with the same ones share.
func (n *interner) containers(own []corev1.Container) []corev1.Container {
	if len(own) == 0 {
		return nil
	}
	var hash maphash.Hash
	hash.SetSeed(n.seed)
	for i := range own {
		for _, part := range []string{own[i].Name, "\x00", own[i].Image, "\x00", restartPolicy(&own[i]), "\x00"} {
			_, _ = hash.WriteString(part)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	sum := hash.Sum64()
	if known, ok := n.containerSet[sum]; ok && slices.EqualFunc(known, own, sameContainer) {
		return known
	}
	kept := make([]corev1.Container, len(own))
	for i := range own {
		kept[i] = corev1.Container{Name: n.share(own[i].Name), Image: n.share(own[i].Image), RestartPolicy: own[i].RestartPolicy}
	}
	makeRoom(n.containerSet)
	n.containerSet[sum] = kept
	return kept
}

func sameContainer(a, b corev1.Container) bool {
	return a.Name == b.Name && a.Image == b.Image && restartPolicy(&a) == restartPolicy(&b)
}

// restartPolicy is empty for a container that follows its pod.
func restartPolicy(c *corev1.Container) string {
	if c.RestartPolicy == nil {
		return ""
	}
	return string(*c.RestartPolicy)
}
