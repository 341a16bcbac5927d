package main

import "github.com/go-logr/logr"

// quiet keeps out of the log what is no news for those who read it.
type quiet struct{ logr.LogSink }

// quieten is for the loggers that controller-runtime gets.
func quieten(log logr.Logger) logr.Logger { return log.WithSink(quiet{log.GetSink()}) }

// WithName hides each refused readiness probe: whoever probes sees the answer,
// and until the process is ready that is every probe.
func (q quiet) WithName(name string) logr.LogSink {
	named := q.LogSink.WithName(name)
	if name == "healthz" {
		return verbose{named}
	}
	return quiet{named}
}

func (q quiet) WithValues(pairs ...any) logr.LogSink { return quiet{q.LogSink.WithValues(pairs...)} }

// Error takes the lease that is given back at the end for what it is.
func (q quiet) Error(err error, message string, pairs ...any) {
	if message == "error received after stop sequence was engaged" && err != nil && err.Error() == "leader election lost" {
		q.Info(0, "gave the lease back")
		return
	}
	q.LogSink.Error(err, message, pairs...)
}

// verbose shows at level debug what would be shown at level info.
type verbose struct{ logr.LogSink }

func (v verbose) Enabled(level int) bool { return v.LogSink.Enabled(level + 1) }

func (v verbose) Info(level int, message string, pairs ...any) {
	v.LogSink.Info(level+1, message, pairs...)
}

func (v verbose) WithName(name string) logr.LogSink { return verbose{v.LogSink.WithName(name)} }

func (v verbose) WithValues(pairs ...any) logr.LogSink {
	return verbose{v.LogSink.WithValues(pairs...)}
}
