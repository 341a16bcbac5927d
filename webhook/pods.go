package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
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
	namespaceTimeout      = 2 * time.Second
	namespacePollInterval = 20 * time.Millisecond
)

// podHandler injects sidecars into new pods, from caches alone while these are
// fresh.
type podHandler struct {
	sets       *setsNow
	namespaces fresh
	revisions  revisionSource
	metrics    *admissionMetrics
	now        func() metav1.Time
}

// answer decides about the pod of an AdmissionReview.
func (h *podHandler) answer(ctx context.Context, buffers *requestBuffers) (*admissionv1.AdmissionResponse, error) {
	began := time.Now()
	request, err := readPodRequest(buffers.body.Bytes())
	if err != nil {
		return nil, err
	}
	sets, err := h.sets.sets(ctx)
	if err != nil {
		h.metrics.refused.Inc()
		return nil, err
	}
	response := h.admit(ctx, sets, request)
	response.UID = request.UID
	h.metrics.took(began)
	return &response.AdmissionResponse, nil
}

// admit is the story of an admission: match, choose versions, inject.
func (h *podHandler) admit(ctx context.Context, known *setIndex, request *podRequest) admission.Response {
	pod := request.pod()
	if match.Mirror(pod) {
		return admission.Allowed("")
	}
	sets, err := h.matching(ctx, known, pod)
	if err != nil {
		return h.refused(sets, err, admission.Errored(http.StatusInternalServerError, err))
	}
	if len(sets) == 0 {
		h.metrics.unmatched.Inc()
		return admission.Allowed("")
	}
	if request.unread != nil {
		return h.refused(sets, request.unread, admission.Errored(http.StatusBadRequest, request.unread))
	}
	versions, err := h.revisions.choose(ctx, pod, sets)
	if err != nil {
		return h.refused(sets, err, admission.Denied(err.Error()))
	}
	injection, err := inject.Pod(pod, versions, h.now())
	if err != nil {
		return h.refused(sets, err, admission.Denied(err.Error()))
	}
	h.injected(sets, injection)
	return patched(injection.Patch()).WithWarnings(injection.Warnings()...)
}

// refused counts a refusal for the set that is the cause, if one is.
func (h *podHandler) refused(sets []*compiledSet, err error, response admission.Response) admission.Response {
	var cause inject.SetError
	counter := h.metrics.refused
	if errors.As(err, &cause) {
		for _, set := range sets {
			if set.name == cause.Set {
				counter = set.metrics.refused
			}
		}
	}
	counter.Inc()
	return response
}

func (h *podHandler) injected(sets []*compiledSet, injection *inject.Injection) {
	for _, set := range sets {
		if !set.paused() {
			set.metrics.injected.Inc()
		}
	}
	h.metrics.containers.Add(float64(injection.Containers()))
}

// matching returns the sets in whose scope the pod is (SPEC §3). A namespace
// that cannot be looked up is an error, never "not matched"; then the set that
// needs it comes last.
func (h *podHandler) matching(ctx context.Context, known *setIndex, pod *corev1.Pod) (matching []*compiledSet, err error) {
	var labels map[string]string
	for _, candidate := range known.matching(pod.Labels) {
		if candidate.scope.NeedsNamespaceLabels() && labels == nil {
			namespace, err := h.namespace(ctx, pod.Namespace)
			if err != nil {
				err = fmt.Errorf("SidecarSet %s: look up namespace %s for its namespaceSelector: %w", candidate.name, pod.Namespace, err)
				return append(matching, candidate), inject.SetError{Set: candidate.name, Err: err}
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
	if h.namespaces.stale() != nil {
		ctx, cancel := context.WithTimeout(ctx, liveReadTimeout)
		defer cancel()
		return namespace, h.namespaces.live.Get(ctx, client.ObjectKey{Name: name}, namespace)
	}
	last := h.namespaces.cached.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if !apierrors.IsNotFound(last) {
		return namespace, last
	}
	err := wait.PollUntilContextTimeout(ctx, namespacePollInterval, namespaceTimeout, false, func(ctx context.Context) (bool, error) {
		last = h.namespaces.cached.Get(ctx, client.ObjectKey{Name: name}, namespace)
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
