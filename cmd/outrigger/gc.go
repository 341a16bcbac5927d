package main

import (
	"os"
	"runtime/debug"
)

// webhookGCPercent is the growth of the webhook's heap between two garbage collections. Admissions create
// much garbage, while the cache is small. With the default of 100 %, ten garbage collections per second would
// delay API requests under load.
const webhookGCPercent = 300

// cacheGCPercent is the growth of the heap of the operator, the worker and the UI between two garbage
// collections. Most of the heap is a cache of pods. Therefore, the default of 100 % would double the memory
// of these processes.
const cacheGCPercent = 40

// setGCPercent sets the growth of the heap between two garbage collections, unless GOGC is set.
func setGCPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
