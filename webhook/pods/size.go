package pods

import "github.com/outrigger/outrigger/webhook/server"

// Size returns the limits of a review of a pod. A review has two objects of at most 3 MiB each,
// which is the limit of API servers, and a few other fields. A list of empty containers needs the
// most memory relative to its length.
func Size() server.Size {
	return server.Size{Bytes: 7 << 20, Values: 250_000, PerByte: 4, PerValue: 1000}
}
