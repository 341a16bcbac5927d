package figures

import (
	"fmt"
	"os"

	"github.com/prometheus/procfs"

	"github.com/outrigger/outrigger/dev/cluster"
)

// Self is this process among the others: the watch that counts, and the clients.
const Self = "bench"

const mebibyte = 1 << 20

// ProcessorSeconds reads how many seconds of processor time each running process of the
// stack has had, and this one.
func ProcessorSeconds(stack *cluster.Cluster) (map[string]float64, error) {
	pids := map[string]int{Self: os.Getpid()}
	for _, status := range stack.Processes() {
		if status.Running {
			pids[status.Name] = status.PID
		}
	}
	seconds := map[string]float64{}
	for name, pid := range pids {
		spent, err := ProcessorTime(pid)
		if err != nil {
			return nil, fmt.Errorf("read the processor time of %s: %w", name, err)
		}
		seconds[name] = spent
	}
	return seconds, nil
}

// ProcessorTime reads how many seconds of processor time a process has had.
func ProcessorTime(pid int) (float64, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, err
	}
	return stat.CPUTime(), nil
}

// Memory is what a process holds of it, in MiB.
type Memory struct{ Resident, Peak float64 }

// MemoryOf reads the memory of a process.
func MemoryOf(pid int) (Memory, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return Memory{}, err
	}
	status, err := process.NewStatus()
	if err != nil {
		return Memory{}, err
	}
	return Memory{Resident: float64(status.VmRSS) / mebibyte, Peak: float64(status.VmHWM) / mebibyte}, nil
}

// RoleMemory reads the memory of each role.
func RoleMemory(stack *cluster.Cluster) (resident, peak map[string]float64, err error) {
	resident, peak = map[string]float64{}, map[string]float64{}
	for _, role := range stack.Roles() {
		status, err := stack.Process(role.Name)
		if err != nil {
			return nil, nil, err
		}
		memory, err := MemoryOf(status.PID)
		if err != nil {
			return nil, nil, fmt.Errorf("read the memory of %s: %w", role.Name, err)
		}
		resident[role.Name], peak[role.Name] = memory.Resident, memory.Peak
	}
	return resident, peak, nil
}

// Difference is what each key has gained since before.
func Difference(before, after map[string]float64) map[string]float64 {
	gained := make(map[string]float64, len(after))
	for key, value := range after {
		gained[key] = value - before[key]
	}
	return gained
}

// Scaled multiplies each figure.
func Scaled(figures map[string]float64, by float64) map[string]float64 {
	scaled := make(map[string]float64, len(figures))
	for key, value := range figures {
		scaled[key] = value * by
	}
	return scaled
}
