package main

import (
	"fmt"
	"os"

	"github.com/prometheus/procfs"
)

// self is this process among the others: the watch that counts, and the ideal mover.
const self = "bench"

// processorTime reads how many seconds of processor time each process of the stack has
// had, and this one.
func (b *bench) processorTime() (map[string]float64, error) {
	pids := map[string]int{self: os.Getpid()}
	for _, status := range b.stack.Processes() {
		if status.Running {
			pids[status.Name] = status.PID
		}
	}
	seconds := map[string]float64{}
	for name, pid := range pids {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return nil, fmt.Errorf("read the processor time of %s: %w", name, err)
		}
		stat, err := process.Stat()
		if err != nil {
			return nil, fmt.Errorf("read the processor time of %s: %w", name, err)
		}
		seconds[name] = stat.CPUTime()
	}
	return seconds, nil
}

// since subtracts what each process had before.
func since(before, after map[string]float64) map[string]float64 {
	spent := make(map[string]float64, len(after))
	for name, seconds := range after {
		spent[name] = seconds - before[name]
	}
	return spent
}
