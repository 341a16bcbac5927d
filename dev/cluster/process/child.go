package process

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyEvery = 50 * time.Millisecond
	tailBytes  = 4096
	tailLines  = 20
)

// child is one process of a group. A child stays the same when its process is started again.
type child struct {
	spec     Spec
	log      string
	starting sync.Mutex // starting is locked until the process is ready, so that only one start is in progress.

	mu  sync.Mutex
	pid int // pid is 0 while the process does not run.
	// gone is closed when the process has ended. stopping is set if a caller has stopped the process.
	gone     chan struct{}
	stopping bool
}

func (c *child) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Status{Name: c.spec.Name, Log: c.log, Running: c.pid != 0, PID: c.pid}
}

// run starts the process unless it is running, and waits until it is ready.
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

// launch starts the process from the thread of the group. A goroutine waits for the end of the process.
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
	if err := g.spawn(cmd); err != nil {
		return err
	}
	c.mu.Lock()
	c.pid, c.gone, c.stopping = cmd.Process.Pid, make(chan struct{}), false
	c.mu.Unlock()
	go c.watch(cmd, g.exits)
	return nil
}

func (c *child) watch(cmd *exec.Cmd, exits chan<- Exit) {
	err := cmd.Wait()
	c.mu.Lock()
	c.pid = 0
	close(c.gone)
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
		case <-gone:
			return
		case <-time.After(gracePeriod):
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	<-gone
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
	gone := c.gone
	ctx, expire := context.WithTimeout(ctx, ReadyWithin)
	defer expire()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-gone:
			cancel(ErrEnded)
		case <-ctx.Done():
		}
	}()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		probe := c.spec.Ready(ctx)
		if probe == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %s is not ready (last probe: %s): %w", c.spec.Name, probe.Error(), context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// Tail returns the last lines of a log file. If the file cannot be read, Tail returns the error
// as text.
func Tail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	buf := make([]byte, min(info.Size(), tailBytes))
	n, _ := f.ReadAt(buf, info.Size()-int64(len(buf))) // The log may have been truncated after Stat.
	lines := strings.Split(strings.TrimSpace(string(buf[:n])), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
