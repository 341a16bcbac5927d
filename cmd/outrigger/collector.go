package main

import (
	"os"
	"runtime/debug"
)

// How much the heap may grow between two garbage collections, in percent. Events
// and admissions leave much garbage beside caches that stay: the usual 100 % means
// ten collections a second under load. The webhook's heap is the smallest, and
// somebody waits for it.
const (
	heapGrowth        = 200
	webhookHeapGrowth = 300
)

// tuneCollector leaves the choice to GOGC where it is set.
func tuneCollector(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
