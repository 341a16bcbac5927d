package activities

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube"
)

// Activities reach the cluster through an informer cache for what they read
// often, and directly for what must be certain.
type Activities struct {
	// Cache answers from informers; what it returns must not be changed.
	Cache client.Reader
	// Index finds the pods of a set.
	Index *kube.Pods
	// Live answers from the API server.
	Live client.Reader
	// Writer writes pods and Leases, Status the status of pods.
	Writer client.Writer
	Status client.SubResourceWriter
	// SystemNamespace holds the Leases of rollouts.
	SystemNamespace string
	// PodUID is that of the pod that this process runs in: whatever had the same before it
	// is dead. Empty: nobody knows.
	PodUID string
	// Events are recorded on pods.
	Events events.EventRecorder
	// Changes wakes activities that wait for something about a set to change.
	Changes *Changes
	Clock   clock.WithTicker
	// Metrics count what batches do.
	Metrics *Metrics
	// Tracer makes a span of each write to a pod.
	Tracer trace.Tracer
	// Current returns an error while the cache of pods is known to be out of date; nil:
	// it never is.
	Current func() error
	// Writers is how many pods are written at a time.
	Writers int
	// Fleet bounds the pods of all sets; nil: each set has a budget of its own, and
	// any worker may upgrade pods.
	Fleet *FleetBudget

	populations rollout.PopulationCache
}

func (a *Activities) reader() *reader {
	return &reader{
		cache: a.Cache, live: a.Live, index: a.Index, clock: a.Clock,
		populations: &a.populations, namespaceLabels: a.namespaceLabels,
	}
}

// writer counts what it does under the change.
func (a *Activities) writer(change string) *writer {
	return &writer{
		reader: a.reader(), pods: a.Writer, status: a.Status, change: change, tracer: a.Tracer,
		results: a.Metrics.pods.MustCurryWith(prometheus.Labels{"change": change}),
	}
}

// current is not asked before a write: that is guarded. Whoever says that nothing moves
// must know it.
func (a *Activities) current() error {
	if a.Current == nil {
		return nil
	}
	return a.Current()
}

func (a *Activities) poller() *poller {
	return &poller{clock: a.Clock, changes: a.Changes}
}

func (a *Activities) namespaceLabels(ctx context.Context) func(string) (map[string]string, error) {
	return kube.NamespaceLabels(ctx, a.Cache)
}
