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
	"github.com/outrigger/outrigger/kube/watches"
)

// Activities read the cluster from an informer cache, and from the API server where a read must
// not be stale.
type Activities struct {
	// Cache reads from informers. Callers must not change the objects that it returns.
	Cache client.Reader
	// Index finds the pods of a set.
	Index *watches.Pods
	// Live reads from the API server.
	Live client.Reader
	// Writer writes pods and Leases, Status the status of pods.
	Writer client.Writer
	Status client.SubResourceWriter
	// SystemNamespace holds the Leases of rollouts.
	SystemNamespace string
	// PodUID is the uid of the pod that this process runs in: an earlier process of the same pod
	// has ended. It is empty if unknown.
	PodUID string
	// Events are recorded on pods.
	Events events.EventRecorder
	// Deleted is the queue of CleanUp; nil without a clean-up.
	Deleted *DeletedSets
	// Changes wakes activities that wait for a change of a SidecarSet or its pods.
	Changes *Changes
	Clock   clock.WithTicker
	// Metrics count the pods of batches and their results.
	Metrics *Metrics
	// Tracer starts a span for each write to a pod.
	Tracer trace.Tracer
	// Current returns an error while the cache of pods is known to be stale. A nil Current means
	// that the cache is never stale.
	Current func() error
	// Writers is the number of pods that are written at a time.
	Writers int
	// Limit is the cluster-wide limit. Without one (nil), each SidecarSet has only its own
	// maxUnavailable, and any worker may upgrade pods.
	Limit *ClusterLimit

	populations rollout.PopulationCache
}

func (a *Activities) reader() *reader {
	return &reader{
		cache: a.Cache, live: a.Live, index: a.Index, clock: a.Clock,
		populations: &a.populations, namespaceLabels: a.namespaceLabels,
	}
}

// writer counts its results by change.
func (a *Activities) writer(change string) *writer {
	return &writer{
		reader: a.reader(), pods: a.Writer, status: a.Status, change: change, tracer: a.Tracer,
		results: a.Metrics.pods.MustCurryWith(prometheus.Labels{"change": change}),
	}
}

// current returns an error while the cache is stale. Writes do not need it, because they are
// guarded. The answer that no pod can be upgraded does.
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
