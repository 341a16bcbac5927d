package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/outrigger/outrigger/dev/cluster"
)

// figures of one run.
type figures struct {
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

func (f *figures) rate() float64 { return float64(f.requests) / f.took.Seconds() }

func (f *figures) String() string {
	milli := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("%16s  %10.0f  %6.2f  %6.2f  %6d  %8.0f", f.pattern, f.rate(), milli(f.p50), milli(f.p99), f.cpu.Microseconds(), f.peak)
}

// usage is what the webhook's process has used so far.
type usage struct {
	cpu  time.Duration
	peak float64
}

// tick is the unit of processor times in /proc, the same on all architectures.
const tick = 10 * time.Millisecond

func (b *bench) usage() (usage, error) {
	process, err := b.stack.Process(cluster.Webhook)
	if err != nil {
		return usage{}, err
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.PID))
	if err != nil {
		return usage{}, fmt.Errorf("read the webhook's processor time: %w", err)
	}
	// After the name, which may hold anything, utime and stime are the 12th and 13th.
	_, rest, _ := strings.Cut(string(stat), ") ")
	var used usage
	for _, field := range strings.Fields(rest)[11:13] {
		ticks, err := strconv.Atoi(field)
		if err != nil {
			return usage{}, fmt.Errorf("read the webhook's processor time: %w", err)
		}
		used.cpu += time.Duration(ticks) * tick
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.PID))
	if err != nil {
		return usage{}, fmt.Errorf("read the webhook's memory: %w", err)
	}
	for row := range strings.Lines(string(status)) {
		if fields := strings.Fields(row); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return usage{}, fmt.Errorf("read the webhook's memory: %w", err)
			}
			used.peak = kib / 1024
		}
	}
	return used, nil
}
