package main

import "github.com/go-logr/logr"

// logFilter lowers the severity of messages of controller-runtime that need no user action.
type logFilter struct {
	logr.LogSink
	// demotion is added to the level of messages.
	demotion int
}

func filterLog(log logr.Logger) logr.Logger { return log.WithSink(logFilter{LogSink: log.GetSink()}) }

func (f logFilter) Enabled(level int) bool { return f.LogSink.Enabled(level + f.demotion) }

func (f logFilter) Info(level int, message string, pairs ...any) {
	f.LogSink.Info(level+f.demotion, message, pairs...)
}

// WithName demotes messages about failed readiness probes to level debug, because every probe fails until the
// process is ready, and the kubelet reports failed probes.
func (f logFilter) WithName(name string) logr.LogSink {
	f.LogSink = f.LogSink.WithName(name)
	if name == "healthz" {
		f.demotion = 1
	}
	return f
}

func (f logFilter) WithValues(pairs ...any) logr.LogSink {
	f.LogSink = f.LogSink.WithValues(pairs...)
	return f
}

// Error logs the release of the Lease at the end of the process at level info, because controller-runtime
// reports this release as an error.
func (f logFilter) Error(err error, message string, pairs ...any) {
	if message == "error received after stop sequence was engaged" && err != nil && err.Error() == "leader election lost" {
		f.Info(0, "released the Lease")
		return
	}
	f.LogSink.Error(err, message, pairs...)
}
