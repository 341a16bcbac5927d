package main

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
)

func logged(level slog.Level, log func(logr.Logger)) string {
	var out bytes.Buffer
	log(filterLog(logr.FromSlogHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))))
	return out.String()
}

func TestFailedProbesAreLoggedAtLevelDebug(t *testing.T) {
	probe := func(log logr.Logger) {
		log.WithName("controller-runtime").WithName("healthz").Info("healthz check failed", "statuses", "x")
	}
	assert.Empty(t, logged(slog.LevelInfo, probe))
	assert.Contains(t, logged(slog.LevelDebug, probe), `msg="healthz check failed"`)
	other := func(log logr.Logger) { log.WithName("controller-runtime").WithValues("a", "b").Info("started") }
	assert.Contains(t, logged(slog.LevelInfo, other), `msg=started`)
}

func TestTheReleaseOfTheLeaseIsNoError(t *testing.T) {
	const message = "error received after stop sequence was engaged"
	end := func(cause string) string {
		return logged(slog.LevelInfo, func(log logr.Logger) { log.WithValues("a", "b").Error(errors.New(cause), message) })
	}
	assert.Contains(t, end("leader election lost"), "level=INFO")
	assert.NotContains(t, end("leader election lost"), "ERROR")
	assert.Contains(t, end("something else"), "level=ERROR")
}
