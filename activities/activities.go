package activities

import (
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/activities/fleet"
	"github.com/outrigger/outrigger/internal/rollout"
	"github.com/outrigger/outrigger/kube/watches"
)

// Activities contains the dependencies of the activities. The activities read objects from an informer cache, and
// from the API server if an object must not be stale.
type Activities struct {
	// Cache reads from informers. Callers must not change the objects that Cache returns.
	Cache client.Reader
	// Index finds the pods of a SidecarSet.
	Index *watches.Pods
	// Live reads from the API server.
	Live client.Reader
	// Writer writes pods and Leases. Status writes the status of pods. Resize writes the resources of
	// containers.
	Writer client.Writer
	Status client.SubResourceWriter
	Resize client.SubResourceWriter
	// Evict creates evictions of pods.
	Evict client.SubResourceWriter
	// SystemNamespace is the namespace of the Leases of rollouts.
	SystemNamespace string
	// PodUID is the uid of the pod of this process, or empty if the uid is unknown. LostBatches finds the
	// batches of an earlier process of the same pod by PodUID.
	PodUID string
	// Events records events on pods.
	Events events.EventRecorder
	// Deleted is the queue of CleanUp. Deleted is nil if this process does not run CleanUp.
	Deleted workqueue.TypedRateLimitingInterface[string]
	// Changes wakes activities that wait for a change of a SidecarSet or its pods.
	Changes *Changes
	Clock   clock.WithTicker
	// Metrics counts the pods of batches by result.
	Metrics *Metrics
	// Tracer starts a span for each write to a pod.
	Tracer trace.Tracer
	// Current returns an error while the cache of pods is known to be stale. An activity calls Current before the
	// activity reports that no pod can be upgraded, and before the activity fills slots, because a stale cache
	// may miss unavailable pods. A single write does not need the call, because the preconditions of the write
	// detect a stale pod.
	Current func() error
	// Writers is the number of pods that each batch writes concurrently.
	Writers int
	// Limit is the cluster-wide limit. If Limit is nil, each SidecarSet has only its own
	// maxUnavailable, and any worker may upgrade pods.
	Limit *ClusterLimit
	// GateClient sends the requests of gates.
	GateClient *http.Client
	// Fleet is the connection of this member to the fleet. Fleet is nil if the cluster is not a member of a
	// fleet.
	Fleet *fleet.Connection

	populations rollout.PopulationCache
	health      rollout.Health
	listing     sync.Once
	listed      lists
}
