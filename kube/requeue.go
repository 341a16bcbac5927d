package kube

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// FirstRetry is the delay before the first retry of a failed reconcile. The delay doubles with each further
	// failure, up to LastRetry.
	FirstRetry = 100 * time.Millisecond
	// LastRetry is the maximum delay before a retry. With the default of controller-runtime, 1000 seconds, an
	// object could wait for many minutes after an outage of the API server.
	LastRetry = 15 * time.Second
)

// RateLimiter returns the rate limiter of a controller, whose backoff begins with FirstRetry and ends with
// LastRetry.
func RateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](FirstRetry, LastRetry)
}
