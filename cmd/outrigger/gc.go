package main

import (
	"os"
	"runtime/debug"
)

// webhookGCPercent is the growth of the webhook's heap between two garbage collections.
// Admissions create much garbage beside a small cache: with the default of 100 %, ten
// collections per second delay API requests under load.
const webhookGCPercent = 300

// cacheGCPercent is the growth of the heap of operator and worker. Most of it is a cache of
// pods, so that 100 % would double their memory.
const cacheGCPercent = 40

// setGCPercent does nothing if GOGC is set.
func setGCPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
