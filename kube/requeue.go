package kube

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// FirstRetry is the time to the first retry of a reconcile that failed. The time doubles with each further
	// failure, up to LastRetry.
	FirstRetry = 100 * time.Millisecond
	// LastRetry is the longest time to a retry. The default of controller-runtime is 1000 seconds, so an object
	// would wait for minutes after an outage of the API server.
	LastRetry = 15 * time.Second
)

// RateLimiter returns the rate limiter of a controller, whose backoff begins with FirstRetry and ends with
// LastRetry.
func RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](FirstRetry, LastRetry)
}
