package main

import (
	"fmt"
	"time"

	"github.com/outrigger/outrigger/dev/bench/figures"
	"github.com/outrigger/outrigger/dev/cluster"
)

// result of one run.
type result struct {
	pattern        pattern
	requests       int
	took, p50, p99 time.Duration
	// cpu is the webhook's processor time a request; peak its memory in MiB.
	cpu  time.Duration
	peak float64
}

const header = "others pod             connections  requests/s  p50 ms  p99 ms  CPU us  peak MiB"

// pattern is how connections are used. API servers keep at most 25 idle ones to a
// webhook; a burst of more requests takes new ones, which are closed afterwards.
type pattern struct{ kept, opened int }

func patterns() []pattern {
	return []pattern{{kept: 1}, {kept: 8}, {kept: 25, opened: 25}, {opened: 8}}
}

func (p pattern) String() string {
	switch {
	case p.opened == 0:
		return fmt.Sprintf("%d kept", p.kept)
	case p.kept == 0:
		return fmt.Sprintf("%d new", p.opened)
	}
	return fmt.Sprintf("%d kept, %d new", p.kept, p.opened)
}

func (r *result) rate() float64 { return float64(r.requests) / r.took.Seconds() }

func (r *result) String() string {
	milli := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("%16s  %10.0f  %6.2f  %6.2f  %6d  %8.0f", r.pattern, r.rate(), milli(r.p50), milli(r.p99), r.cpu.Microseconds(), r.peak)
}

// usage is what the webhook's process has used so far.
type usage struct {
	cpu  time.Duration
	peak float64
}

func (b *bench) usage() (usage, error) {
	process, err := b.stack.Process(cluster.Webhook)
	if err != nil {
		return usage{}, err
	}
	seconds, err := figures.ProcessorTime(process.PID)
	if err != nil {
		return usage{}, fmt.Errorf("read the webhook's processor time: %w", err)
	}
	memory, err := figures.MemoryOf(process.PID)
	if err != nil {
		return usage{}, fmt.Errorf("read the webhook's memory: %w", err)
	}
	return usage{cpu: time.Duration(seconds * float64(time.Second)), peak: memory.Peak}, nil
}
