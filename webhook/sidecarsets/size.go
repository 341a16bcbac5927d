package sidecarsets

import "github.com/outrigger/outrigger/webhook/server"

// Size limits a review of a SidecarSet: two objects of at most 3 MiB each, the limit of
// API servers, and the rest of the review. A list of empty containers needs the most
// memory for its length.
func Size() server.Size {
	return server.Size{Bytes: 7 << 20, Values: 30_000, PerByte: 4, PerValue: 12_000}
}

// ConversionSize limits a page of a list, at most 500 objects. etcd limits each object to
// 1.5 MiB; most are far smaller.
func ConversionSize() server.Size {
	return server.Size{Bytes: 32 << 20, Values: 4_000_000, PerByte: 8, PerValue: 40}
}
