package main

import (
	"os"
	"runtime/debug"
)

// collectorPercent is how much the heap may grow between two collections.
// Events and admissions leave much garbage beside caches that stay: the usual
// 100 % means ten collections a second under load.
const collectorPercent = 200

// tuneCollector leaves the choice to GOGC where it is set.
func tuneCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectorPercent)
	}
}
