package pods

import "github.com/outrigger/outrigger/webhook/server"

// Size limits a review of a pod: two objects of at most 3 MiB each, the limit of API
// servers, and the rest of the review. A list of empty containers needs the most memory
// for its length.
func Size() server.Size {
	return server.Size{Bytes: 7 << 20, Values: 250_000, PerByte: 4, PerValue: 1000}
}
