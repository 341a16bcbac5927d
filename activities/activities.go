package activities

import (
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/rollout"
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
	// SystemNamespace contains the Leases of rollouts.
	SystemNamespace string
	// PodUID is the uid of the pod that this process runs in: an earlier process of the same pod
	// has ended. It is empty if unknown.
	PodUID string
	// Events are recorded on pods.
	Events events.EventRecorder
	// Deleted is the queue of CleanUp; nil without a clean-up.
	Deleted workqueue.TypedRateLimitingInterface[string]
	// Changes wakes activities that wait for a change of a SidecarSet or its pods.
	Changes *Changes
	Clock   clock.WithTicker
	// Metrics count the pods of batches and their results.
	Metrics *Metrics
	// Tracer starts a span for each write to a pod.
	Tracer trace.Tracer
	// Current returns an error while the cache of pods is known to be stale. Writes do not need it,
	// because they are guarded. The answer that no pod can be upgraded does.
	Current func() error
	// Writers is the number of pods that are written at a time.
	Writers int
	// Limit is the cluster-wide limit. Without one (nil), each SidecarSet has only its own
	// maxUnavailable, and any worker may upgrade pods.
	Limit *ClusterLimit

	populations rollout.PopulationCache
}
