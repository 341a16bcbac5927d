package main

import "github.com/go-logr/logr"

// logFilter drops or demotes messages that need no attention.
type logFilter struct{ logr.LogSink }

// filterLog returns a logger for controller-runtime.
func filterLog(log logr.Logger) logr.Logger { return log.WithSink(logFilter{log.GetSink()}) }

// WithName demotes failed readiness probes to level debug: the prober sees the answer,
// and until the process is ready every probe fails.
func (f logFilter) WithName(name string) logr.LogSink {
	named := f.LogSink.WithName(name)
	if name == "healthz" {
		return verbose{named}
	}
	return logFilter{named}
}

func (f logFilter) WithValues(pairs ...any) logr.LogSink {
	return logFilter{f.LogSink.WithValues(pairs...)}
}

// Error logs at level info that the lease is released at the end, which controller-runtime
// reports as an error.
func (f logFilter) Error(err error, message string, pairs ...any) {
	if message == "error received after stop sequence was engaged" && err != nil && err.Error() == "leader election lost" {
		f.Info(0, "gave the lease back")
		return
	}
	f.LogSink.Error(err, message, pairs...)
}

// verbose logs at level debug what would be logged at level info.
type verbose struct{ logr.LogSink }

func (v verbose) Enabled(level int) bool { return v.LogSink.Enabled(level + 1) }

func (v verbose) Info(level int, message string, pairs ...any) {
	v.LogSink.Info(level+1, message, pairs...)
}

func (v verbose) WithName(name string) logr.LogSink { return verbose{v.LogSink.WithName(name)} }

func (v verbose) WithValues(pairs ...any) logr.LogSink {
	return verbose{v.LogSink.WithValues(pairs...)}
}
