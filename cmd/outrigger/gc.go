package main

import (
	"os"
	"runtime/debug"
)

// Growth of the heap between two garbage collections, in percent. Events and admissions
// leave much garbage beside caches that stay: the usual 100 % means ten collections a
// second under load. The webhook's heap is the smallest, and API requests wait for it.
const (
	gcPercent        = 200
	webhookGCPercent = 300
)

// setGCPercent does nothing if GOGC is set.
func setGCPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
