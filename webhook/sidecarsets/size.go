package sidecarsets

import "github.com/outrigger/outrigger/webhook/server"

// Size returns the limits of a review of a SidecarSet. A review has two objects of at most 3 MiB
// each, which is the limit of API servers, and a few other fields. A list of empty containers
// needs the most memory relative to its length.
func Size() server.Size {
	return server.Size{Bytes: 7 << 20, Values: 30_000, PerByte: 4, PerValue: 12_000}
}

// ConversionSize returns the limits of a review that converts a page of a list. A page has at
// most 500 objects. etcd limits each object to 1.5 MiB, but most objects are far smaller.
func ConversionSize() server.Size {
	return server.Size{Bytes: 32 << 20, Values: 4_000_000, PerByte: 8, PerValue: 40}
}
