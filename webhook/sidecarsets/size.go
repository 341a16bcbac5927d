package sidecarsets

import "github.com/outrigger/outrigger/webhook/server"

// Size is that of a review of a SidecarSet: of two objects, of 3 MiB at most each as
// API servers take them, and what a review adds. What takes the most memory for its
// length is a list of empty containers, which are larger than those of pods.
func Size() server.Size {
	return server.Size{Bytes: 7 << 20, Values: 30_000, PerByte: 4, PerValue: 12_000}
}

// ConversionSize is that of a page of a list, of 500 objects at most; etcd limits
// each to 1.5 MiB, and most are far smaller.
func ConversionSize() server.Size {
	return server.Size{Bytes: 32 << 20, Values: 4_000_000, PerByte: 8, PerValue: 40}
}
