// Package process starts programs, and stops, kills, suspends and restarts each program by its name. When the
// process that uses this package ends, the kernel kills these programs.
package process

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Spec describes one process and its readiness probe.
type Spec struct {
	// Name is the name of the process, which is unique in its Group. Name is also the name of the log file.
	Name string
	Path string
	Args []string
	// Env is added to the parent's environment, as KEY=value.
	Env []string
	// System contains additional attributes. Setpgid and Pdeathsig are always set, so that each process has its
	// own group, and is killed when its parent ends.
	System syscall.SysProcAttr
	// StopSignal is SIGTERM by default.
	StopSignal syscall.Signal
	// Ready is the readiness probe, which is called until it succeeds. Without a probe, the process is ready
	// immediately.
	Ready func(ctx context.Context) error
}

// Status is the state of one process.
type Status struct {
	Name    string
	PID     int
	Running bool
	Log     string
}

// Exit describes the end of a process that no caller stopped.
type Exit struct {
	Name string
	// Err is nil if the process ended with exit code 0.
	Err error
	// LogTail contains the last lines of the log of the process.
	LogTail string
}

const (
	// StopWithin is the maximum time between the StopSignal of a process and its end. This value is also the
	// default grace period of pods.
	StopWithin = 30 * time.Second
	// ReadyWithin is the maximum time between the start of a process and its readiness.
	ReadyWithin = 2 * time.Minute
)

var (
	// ErrUnknown is returned if no process with the name was ever started.
	ErrUnknown = errors.New("unknown process")
	// ErrShutdown is returned if the group was shut down.
	ErrShutdown = errors.New("the process group is shut down")
	// ErrEnded is returned if a process ends before the process is ready, or if the target of a signal is not
	// running.
	ErrEnded = errors.New("it ended")
)

// Group is a set of processes that are started and stopped by name. The methods of Group may be called from
// several goroutines.
type Group struct {
	logs  string
	exits chan Exit

	mu       sync.Mutex
	children []*child // children are sorted by their first start.
	down     bool
}

// NewGroup returns an empty group. The processes of the group log to <logs>/<name>.log.
func NewGroup(logs string) *Group { return &Group{logs: logs, exits: make(chan Exit, 64)} }

// Exited returns a channel with an Exit for each process that ends although no caller has stopped the
// process. If the channel contains 64 unread values, further values are dropped.
func (g *Group) Exited() <-chan Exit { return g.exits }

// Start runs a new process, and waits until it is ready or ends, or until ctx ends. If the process does not
// become ready, Start kills it and returns an error with the last lines of the log.
func (g *Group) Start(ctx context.Context, spec Spec) error {
	c := &child{spec: spec, log: filepath.Join(g.logs, spec.Name+".log")}
	g.mu.Lock()
	exists := slices.ContainsFunc(g.children, func(c *child) bool { return c.spec.Name == spec.Name })
	if !exists {
		g.children = append(g.children, c)
	}
	g.mu.Unlock()
	if exists {
		return fmt.Errorf("process %s exists already; start it again by name", spec.Name)
	}
	return c.run(ctx, g)
}

// StartAgain starts a stopped process with the same arguments, and does nothing if the process is running. If
// no process called name was ever started, the error is ErrUnknown.
func (g *Group) StartAgain(ctx context.Context, name string) error {
	return g.with(name, func(c *child) error { return c.run(ctx, g) })
}

// Stop sends the StopSignal and, after StopWithin, SIGKILL to the whole process group, and returns when the
// process is gone. If the process does not run, Stop does nothing.
func (g *Group) Stop(name string) error {
	return g.with(name, func(c *child) error { c.stop(StopWithin); return nil })
}

// Kill sends SIGKILL to the whole process group and returns when the process is gone.
func (g *Group) Kill(name string) error {
	return g.with(name, func(c *child) error { c.stop(0); return nil })
}

// Freeze suspends the process group until Thaw. Other processes cannot distinguish a frozen process from a
// process without CPU time.
func (g *Group) Freeze(name string) error {
	return g.with(name, func(c *child) error { return c.signal(syscall.SIGSTOP) })
}

// Thaw resumes a frozen process group.
func (g *Group) Thaw(name string) error {
	return g.with(name, func(c *child) error { return c.signal(syscall.SIGCONT) })
}

// Process returns the state of the named process, or ErrUnknown.
func (g *Group) Process(name string) (status Status, err error) {
	err = g.with(name, func(c *child) error { status = c.status(); return nil })
	return status, err
}

// Processes returns all processes in the order of their first start.
func (g *Group) Processes() []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]Status, 0, len(g.children))
	for _, c := range g.children {
		all = append(all, c.status())
	}
	return all
}

// Shutdown stops all processes in the reverse order of their first start. Afterwards, the group starts no
// process. A second call does nothing.
func (g *Group) Shutdown() {
	g.mu.Lock()
	g.down = true
	children := slices.Clone(g.children)
	g.mu.Unlock()
	for _, c := range slices.Backward(children) {
		c.stop(StopWithin)
	}
}

// with calls act for the process called name. If no process called name was ever started, the error is
// ErrUnknown.
func (g *Group) with(name string, act func(*child) error) error {
	g.mu.Lock()
	i := slices.IndexFunc(g.children, func(c *child) bool { return c.spec.Name == name })
	if i < 0 {
		g.mu.Unlock()
		return fmt.Errorf("process %q: %w", name, ErrUnknown)
	}
	c := g.children[i]
	g.mu.Unlock()
	return act(c)
}
