package pods

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
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outrigger/outrigger/internal/inject"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/webhook/fallback"
	"github.com/outrigger/outrigger/webhook/review"
	"github.com/outrigger/outrigger/webhook/server"
)

// A namespace can be newer than the cache, so the Handler polls the cache for at most namespaceTimeout.
const (
	namespaceTimeout      = 2 * time.Second
	namespacePollInterval = 20 * time.Millisecond
)

// Options are the options of a Handler.
type Options struct {
	// Log reports SidecarSets whose selectors cannot be parsed.
	Log logr.Logger
	// Sets reads SidecarSets, and Namespaces reads namespaces.
	Sets, Namespaces fallback.Reader
	Revisions        fallback.Revisions
	// Registerer registers the metrics of admissions.
	Registerer prometheus.Registerer
	// Fleet is set in a member of a fleet. Until the newest content has a permit, the last good revision, if
	// any, is injected into new pods.
	Fleet bool
}

// Handler injects sidecars into new pods. While the caches are current, Handler reads only from the caches,
// except to find a pinned revision that the cache lacks.
type Handler struct {
	sets       *setSource
	namespaces fallback.Reader
	revisions  fallback.Revisions
	policies   policies
	metrics    *metrics
	now        func() metav1.Time
	fleet      bool
}

// New returns a handler without SidecarSets. SetEventHandler adds the SidecarSets.
func New(o Options) *Handler {
	metrics := newMetrics(o.Registerer)
	return &Handler{
		sets:       &setSource{Reader: o.Sets, informed: newSetIndex(o.Log, metrics), log: o.Log, clock: clock.RealClock{}},
		namespaces: o.Namespaces,
		revisions:  o.Revisions,
		metrics:    metrics,
		now:        metav1.Now,
		fleet:      o.Fleet,
	}
}

// SetEventHandler returns the event handler for the informer of SidecarSets.
func (h *Handler) SetEventHandler() cache.ResourceEventHandler {
	return events(h.sets.informed.put, h.sets.informed.remove)
}

// Answer answers the AdmissionReview of a new pod. Answer is a review.Decider.
func (h *Handler) Answer(ctx context.Context, buffers *server.Buffers) (*admissionv1.AdmissionResponse, error) {
	began := time.Now()
	request, err := readPodRequest(buffers.Body.Bytes())
	if err != nil {
		return nil, err
	}
	pod := request.pod()
	if match.Mirror(pod) {
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}, nil
	}
	index, err := h.sets.index(ctx)
	if err != nil {
		h.metrics.rejected.Inc()
		return nil, err
	}
	response := h.admit(ctx, index, request, pod)
	response.UID = request.UID
	h.metrics.duration.Observe(time.Since(began).Seconds())
	return &response.AdmissionResponse, nil
}

// admit matches the pod, resolves the version of each SidecarSet, and injects the sidecars.
func (h *Handler) admit(ctx context.Context, index *setIndex, request *podRequest, pod *corev1.Pod) admission.Response {
	sets, err := h.matching(ctx, index, pod)
	if err != nil {
		return h.rejected(sets, err, admission.Errored(http.StatusInternalServerError, err))
	}
	if len(sets) == 0 {
		h.metrics.unmatched.Inc()
		return admission.Allowed("")
	}
	if request.specErr != nil {
		return h.rejected(sets, request.specErr, admission.Errored(http.StatusBadRequest, request.specErr))
	}
	content, err := h.resolve(ctx, request.UID, pod, sets)
	if err != nil {
		return h.rejected(sets, err, admission.Denied(err.Error()))
	}
	injection, err := content.inject(pod, h.now())
	if err != nil {
		return h.rejected(sets, err, admission.Denied(err.Error()))
	}
	h.injected(sets, injection)
	return review.Patched(injection.Patch()).WithWarnings(injection.Warnings()...)
}

// rejected counts a rejection, and returns response. If err is an inject.SetError, the rejection is counted
// for the SidecarSet in err.
func (h *Handler) rejected(sets []*compiledSet, err error, response admission.Response) admission.Response {
	var cause inject.SetError
	counter := h.metrics.rejected
	if errors.As(err, &cause) {
		for _, set := range sets {
			if set.name == cause.Set {
				counter = set.metrics.rejected
			}
		}
	}
	counter.Inc()
	return response
}

func (h *Handler) injected(sets []*compiledSet, injection *inject.Injection) {
	for _, set := range sets {
		set.metrics.injected.Inc()
	}
	h.metrics.containers.Add(float64(injection.Containers()))
}

// matching returns the SidecarSets that match the pod and inject sidecars (SPEC §3). If the namespace cannot
// be read, matching returns an error instead of treating the pod as not matched. In this case, the last
// returned SidecarSet is the cause of the error.
func (h *Handler) matching(ctx context.Context, index *setIndex, pod *corev1.Pod) (matching []*compiledSet, err error) {
	var labels map[string]string
	for _, candidate := range index.matching(pod.Labels) {
		if candidate.paused() || !candidate.scope.MayContain(pod.Namespace) {
			continue // a SidecarSet that cannot inject the pod needs no look-up
		}
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

func (h *Handler) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{}
	if h.namespaces.Stale() != nil {
		ctx, cancel := context.WithTimeout(ctx, fallback.Timeout)
		defer cancel()
		return namespace, h.namespaces.Live.Get(ctx, client.ObjectKey{Name: name}, namespace)
	}
	last := h.namespaces.Cached.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if !apierrors.IsNotFound(last) {
		return namespace, last
	}
	err := wait.PollUntilContextTimeout(ctx, namespacePollInterval, namespaceTimeout, false, func(ctx context.Context) (bool, error) {
		last = h.namespaces.Cached.Get(ctx, client.ObjectKey{Name: name}, namespace)
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
