package webhook

import (
	"context"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/match"
)

// A namespace can be newer than the cache: it is waited for this long.
const (
	namespacePatience = 2 * time.Second
	namespaceInterval = 20 * time.Millisecond
)

// setSource finds the SidecarSets whose selectors take a pod's labels.
type setSource interface {
	matching(podLabels map[string]string) []*compiledSet
}

// podHandler injects sidecars into new pods, from caches alone.
type podHandler struct {
	decoder admission.Decoder
	sets    setSource
	// namespaces reads from the cache.
	namespaces client.Reader
	revisions  revisionSource
	now        func() metav1.Time
}

// Handle is the story of an admission: read, match, choose versions, inject.
func (h *podHandler) Handle(ctx context.Context, req admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := h.decoder.Decode(req, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the pod: %w", err))
	}
	if pod.Namespace == "" {
		pod.Namespace = req.Namespace
	}
	if !match.Active(pod) {
		return admission.Allowed("")
	}
	sets, err := h.matching(ctx, pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	versions, err := h.revisions.choose(ctx, pod, sets)
	if err != nil {
		return admission.Denied(err.Error())
	}
	injection, err := inject.Pod(pod, versions, h.now())
	if err != nil {
		return admission.Denied(err.Error())
	}
	return patched(injection.Patch())
}

// matching returns the sets in whose scope the pod is (SPEC §3). A namespace
// that cannot be looked up is an error, never "not matched".
func (h *podHandler) matching(ctx context.Context, pod *corev1.Pod) ([]*compiledSet, error) {
	var matching []*compiledSet
	var labels map[string]string
	for _, candidate := range h.sets.matching(pod.Labels) {
		if candidate.scope.NeedsNamespaceLabels() && labels == nil {
			namespace, err := h.namespace(ctx, pod.Namespace)
			if err != nil {
				return nil, fmt.Errorf("SidecarSet %s: look up namespace %s for its namespaceSelector: %w", candidate.name, pod.Namespace, err)
			}
			labels = namespace.Labels
		}
		if candidate.scope.Namespace(pod.Namespace, labels) {
			matching = append(matching, candidate)
		}
	}
	return matching, nil
}

func (h *podHandler) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	var last error
	err := wait.PollUntilContextTimeout(ctx, namespaceInterval, namespacePatience, true, func(ctx context.Context) (bool, error) {
		last = h.namespaces.Get(ctx, client.ObjectKey{Name: name}, namespace)
		if apierrors.IsNotFound(last) {
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) && last != nil {
		return nil, last
	}
	return namespace, err
}
