package process

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	readyEvery = 50 * time.Millisecond
	tailBytes  = 4096
	tailLines  = 20
)

// child is one process of a group. A restarted process keeps its child.
type child struct {
	spec     Spec
	log      string
	starting sync.Mutex // starting is locked until the process is ready, so that only one start is in progress.

	mu  sync.Mutex
	pid int // pid is 0 while the process does not run.
	// gone is cancelled when the process has ended. stopping is true if a caller has stopped the process.
	gone     context.Context
	stopping bool
}

func (c *child) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{Name: c.spec.Name, Log: c.log, Running: c.pid != 0, PID: c.pid}
}

// run starts the process unless the process is running, and waits until the process is ready.
func (c *child) run(ctx context.Context, g *Group) error {
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.status().Running {
		return nil
	}
	if err := c.launch(g); err != nil {
		return fmt.Errorf("start process %s from %s: %w", c.spec.Name, c.spec.Path, err)
	}
	if err := c.awaitReady(ctx); err != nil {
		c.stop(0)
		return fmt.Errorf("%w; last lines of %s:\n%s", err, c.log, Tail(c.log))
	}
	return nil
}

// launch starts the process unless the group is shut down.
func (c *child) launch(g *Group) error {
	if err := os.MkdirAll(filepath.Dir(c.log), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // The child has its own file descriptor.
	// The context of the caller is not used, because the process outlives the call of launch.
	cmd := exec.CommandContext(context.Background(), c.spec.Path, c.spec.Args...)
	cmd.Env = append(os.Environ(), c.spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	system := c.spec.System
	system.Setpgid, system.Pdeathsig = true, syscall.SIGKILL
	cmd.SysProcAttr = &system
	g.mu.Lock() // The lock is held until the process runs, so that Shutdown also stops this process.
	defer g.mu.Unlock()
	if g.down {
		return ErrShutdown
	}
	started := make(chan error)
	go c.keep(cmd, started, g.exits)
	return <-started
}

// keep starts the process, and waits for its end on the same thread, because the kernel sends Pdeathsig when the
// thread that has started the process ends.
func (c *child) keep(cmd *exec.Cmd, started chan<- error, exits chan<- Exit) {
	runtime.LockOSThread()
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	gone, end := context.WithCancel(context.Background())
	c.mu.Lock()
	c.pid, c.gone, c.stopping = cmd.Process.Pid, gone, false
	c.mu.Unlock()
	started <- nil
	err := cmd.Wait()
	c.mu.Lock()
	c.pid = 0
	end()
	stopping := c.stopping
	c.mu.Unlock()
	if stopping {
		return
	}
	select {
	case exits <- Exit{Name: c.spec.Name, Err: err, LogTail: Tail(c.log)}:
	default: // The channel is full, because no caller reads the channel.
	}
}

// stop sends the StopSignal to the process group, kills the group after gracePeriod, and returns when the
// process is gone. If gracePeriod is 0, stop kills the group immediately.
func (c *child) stop(gracePeriod time.Duration) {
	c.mu.Lock()
	pid, gone := c.pid, c.gone
	c.stopping = true
	c.mu.Unlock()
	if pid == 0 {
		return
	}
	// An error of Kill means that the process group is gone, so errors are ignored.
	if gracePeriod > 0 {
		_ = syscall.Kill(-pid, cmp.Or(c.spec.StopSignal, syscall.SIGTERM))
		select {
		case <-gone.Done():
			return
		case <-time.After(gracePeriod):
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	<-gone.Done()
}

func (c *child) signal(sig syscall.Signal) error {
	pid, err := c.status().PID, ErrEnded
	if pid != 0 {
		err = syscall.Kill(-pid, sig)
	}
	if err != nil {
		return fmt.Errorf("send %s to process %s: %w", sig, c.spec.Name, err)
	}
	return nil
}

// awaitReady polls the probe, because a process sends no event when the process is ready.
func (c *child) awaitReady(ctx context.Context) error {
	if c.spec.Ready == nil {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.gone, func() { cancel(ErrEnded) })()
	var probe error
	err := wait.PollUntilContextTimeout(ctx, readyEvery, ReadyWithin, true, func(ctx context.Context) (bool, error) {
		probe = c.spec.Ready(ctx)
		return probe == nil, nil
	})
	if err != nil {
		return fmt.Errorf("process %s is not ready (last probe: %s): %w", c.spec.Name, probe.Error(), cmp.Or(context.Cause(ctx), err))
	}
	return nil
}

// Tail returns the last lines of a log file. If the file cannot be read, Tail returns the error
// as text.
func Tail(path string) string {
	log, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(log[max(0, len(log)-tailBytes):])), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
