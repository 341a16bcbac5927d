package pods

import "github.com/outrigger/outrigger/webhook/server"

// Size is that of a review of a pod: of two objects, of 3 MiB at most each as API
// servers take them, and what a review adds. What takes the most memory for its
// length is a list of empty containers.
func Size() server.Size {
	return server.Size{Bytes: 7 << 20, Values: 250_000, PerByte: 4, PerValue: 1000}
}
