package watches

import (
	"encoding/binary"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/revision"
)

const (
	// poolLimit is the number of values of one kind at which the pool drops all values of this kind. The
	// limit bounds the memory for values of deleted objects.
	poolLimit = 1 << 12
	// maxPooledLength is the length of the longest map value that is pooled, in bytes.
	maxPooledLength = 1 << 10
)

// stringPool makes cached pods share equal values, because the pods of one workload differ in few fields.
// Shared values are immutable. stringPool is not safe for concurrent use.
type stringPool struct {
	texts         map[string]string
	labelMaps     map[string]map[string]string
	containerSets map[string][]corev1.Container
	// sidecarEnv contains the only environment variable of a sidecar that roles read.
	sidecarEnv []corev1.EnvVar
}

func newStringPool() *stringPool {
	return &stringPool{
		texts: map[string]string{}, labelMaps: map[string]map[string]string{}, containerSets: map[string][]corev1.Container{},
		sidecarEnv: []corev1.EnvVar{{Name: v1alpha1.InjectedEnv, Value: "true"}},
	}
}

func add[V any](pool map[string]V, key string, value V) V {
	if len(pool) >= poolLimit {
		clear(pool)
	}
	pool[key] = value
	return value
}

func (p *stringPool) text(value string) string {
	if known, ok := p.texts[value]; ok {
		return known
	}
	return add(p.texts, value, value)
}

// annotations returns a new map with shared keys and values, because pods that are upgraded in the same
// second have equal values. Values longer than maxPooledLength are not shared.
func (p *stringPool) annotations(own map[string]string) map[string]string {
	if own == nil {
		return nil
	}
	kept := make(map[string]string, len(own))
	for key, value := range own {
		if len(value) <= maxPooledLength {
			value = p.text(value)
		}
		kept[p.text(key)] = value
	}
	return kept
}

// labels returns a map with equal content, which all pods with equal labels share.
func (p *stringPool) labels(own map[string]string) map[string]string {
	var key []byte
	for _, name := range slices.Sorted(maps.Keys(own)) {
		key = appendParts(key, name, own[name])
	}
	if known, ok := p.labelMaps[string(key)]; ok {
		return known
	}
	return add(p.labelMaps, string(key), p.annotations(own))
}

// containers returns containers with only the fields that roles read: names, images, restart policies, the
// fields that a resize reads, and the variable that marks a sidecar. Pods for which these fields are equal
// share the result.
func (p *stringPool) containers(own []corev1.Container) []corev1.Container {
	if len(own) == 0 {
		return nil
	}
	var key []byte
	for i := range own {
		key = appendParts(key, own[i].Name, own[i].Image, string(ptr.Deref(own[i].RestartPolicy, "")), strconv.FormatBool(inject.Injected(&own[i])))
		key = appendAmounts(appendAmounts(key, own[i].Resources.Requests), own[i].Resources.Limits)
		key = binary.AppendUvarint(key, uint64(len(own[i].ResizePolicy)))
		for _, policy := range own[i].ResizePolicy {
			key = appendParts(key, string(policy.ResourceName), string(policy.RestartPolicy))
		}
	}
	if known, ok := p.containerSets[string(key)]; ok {
		return known
	}
	kept := make([]corev1.Container, len(own))
	for i := range own {
		kept[i] = corev1.Container{
			Name: p.text(own[i].Name), Image: p.text(own[i].Image), RestartPolicy: own[i].RestartPolicy, ResizePolicy: own[i].ResizePolicy,
			Resources: corev1.ResourceRequirements{Requests: resizable(own[i].Resources.Requests), Limits: resizable(own[i].Resources.Limits)},
		}
		if inject.Injected(&own[i]) {
			kept[i].Env = p.sidecarEnv
		}
	}
	return add(p.containerSets, string(key), kept)
}

// appendParts appends the length and the text of each part, so that different parts make different keys.
func appendParts(key []byte, parts ...string) []byte {
	for _, part := range parts {
		key = append(binary.AppendUvarint(key, uint64(len(part))), part...)
	}
	return key
}

// resizable returns the amounts of the resources that a kubelet can resize.
func resizable(all corev1.ResourceList) (kept corev1.ResourceList) {
	for _, name := range revision.ResizableResources() {
		if amount, present := all[name]; present {
			if kept == nil {
				kept = corev1.ResourceList{}
			}
			kept[name] = amount
		}
	}
	return kept
}

func appendAmounts(key []byte, all corev1.ResourceList) []byte {
	for _, name := range revision.ResizableResources() {
		amount, present := all[name]
		key = appendParts(key, strconv.FormatBool(present), amount.String())
	}
	return key
}
