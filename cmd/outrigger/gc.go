package main

import (
	"os"
	"runtime/debug"
)

// webhookGCPercent is how much the webhook's heap grows between two garbage collections.
// Admissions leave much garbage beside a small cache: the usual 100 % means ten
// collections a second under load, and API requests wait for it.
const webhookGCPercent = 300

// setGCPercent does nothing if GOGC is set.
func setGCPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
