package main

import (
	"os"
	"runtime/debug"
)

// webhookGCPercent is how much the webhook's heap grows between two garbage collections.
// Admissions leave much garbage beside a small cache: the usual 100 % means ten
// collections a second under load, and API requests wait for it.
const webhookGCPercent = 300

// cacheGCPercent is that of operator and worker. Most of their heap is a cache of pods,
// which lives on, and so much again for garbage is memory that a node could use.
const cacheGCPercent = 40

// setGCPercent does nothing if GOGC is set.
func setGCPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
