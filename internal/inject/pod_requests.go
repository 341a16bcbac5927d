package inject

import (
	"maps"
	"math/big"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/jsonpatch"
	"github.com/outrigger/outrigger/internal/revision"
)

// podRequests returns the operations that raise the requests of the whole pod to the requests of its containers
// (SPEC 4.7.9). The API server writes requests of the whole pod before the webhook adds sidecars, and rejects a
// pod whose containers request more. podRequests does not change a request that is sufficient, or too large to
// compute.
func (i *Injection) podRequests() []jsonpatch.Operation {
	if i.pod.Spec.Resources == nil || i.Containers() == 0 {
		return nil
	}
	var operations []jsonpatch.Operation
	existing := i.pod.Spec.Resources.Requests
	for _, name := range slices.Sorted(maps.Keys(existing)) {
		pod, err := exact(existing[name])
		if err != nil {
			continue
		}
		total, err := i.requested(name)
		if err != nil || total.Cmp(pod) <= 0 {
			continue
		}
		if quantity, err := rounded(name, total); err == nil {
			operations = append(operations, jsonpatch.Add(jsonpatch.Pointer("spec", "resources", "requests", string(name)), quantity))
		}
	}
	return operations
}

// requested returns the largest amount of a resource that the containers of the pod request at one time after
// the injection. A native sidecar runs together with the containers, and with each later init container.
func (i *Injection) requested(name corev1.ResourceName) (*big.Rat, error) {
	running, largest := new(big.Rat), new(big.Rat)
	for _, c := range i.initContainers.all() {
		request, err := requestOf(c, name)
		if err != nil {
			return nil, err
		}
		started := new(big.Rat).Add(running, request)
		if revision.IsNativeSidecar(c) {
			running = started
		}
		if started.Cmp(largest) > 0 {
			largest = started
		}
	}
	for _, c := range i.containers.all() {
		request, err := requestOf(c, name)
		if err != nil {
			return nil, err
		}
		running.Add(running, request)
	}
	if running.Cmp(largest) > 0 {
		return running, nil
	}
	return largest, nil
}

// requestOf returns the request of a container. Kubernetes uses the limit as the default of the request.
func requestOf(c *corev1.Container, name corev1.ResourceName) (*big.Rat, error) {
	request, found := c.Resources.Requests[name]
	if !found {
		request = c.Resources.Limits[name]
	}
	return exact(request)
}

// all returns the containers of the list after the injection.
func (p *insertions) all() []*corev1.Container {
	all := slices.Clone(p.before)
	for index := range p.existing {
		if replaced := p.replaced[index]; replaced != nil {
			all = append(all, replaced)
		} else {
			all = append(all, &p.existing[index])
		}
	}
	return append(all, p.after...)
}
