package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
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

var errEnded = errors.New("it ended")

// child is one process of a group over all its lives.
type child struct {
	spec     Spec
	log      string
	starting sync.Mutex // locked from launch until ready, so that one life is started at a time

	mu   sync.Mutex
	life *life // nil before the first start
}

// life is one run of a child.
type life struct {
	pid   int
	done  chan struct{} // closed once the process is gone
	asked bool          // the end was asked for; guarded by child.mu
}

func (l *life) running() bool {
	if l == nil {
		return false
	}
	select {
	case <-l.done:
		return false
	default:
		return true
	}
}

func (c *child) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Status{Name: c.spec.Name, Log: c.log, Running: c.life.running()}
	if s.Running {
		s.PID = c.life.pid
	}
	return s
}

// launch forks the process through the group's thread and watches for its end.
func (c *child) launch(g *Group) error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of process %s: %w", c.spec.Name, err)
	}
	defer func() { _ = log.Close() }() // the child keeps its own handle
	// No context: a process outlives the call that starts it.
	cmd := exec.CommandContext(context.Background(), c.spec.Path, c.spec.Args...)
	cmd.Env = append(os.Environ(), c.spec.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	system := c.spec.System
	system.Setpgid, system.Pdeathsig = true, syscall.SIGKILL
	cmd.SysProcAttr = &system

	if err := g.spawn(cmd); err != nil {
		return fmt.Errorf("start process %s from %s: %w", c.spec.Name, c.spec.Path, err)
	}
	l := &life{pid: cmd.Process.Pid, done: make(chan struct{})}
	c.mu.Lock()
	c.life = l
	c.mu.Unlock()
	go c.watch(cmd, l, g.exits)
	return nil
}

func (c *child) watch(cmd *exec.Cmd, l *life, exits chan<- Exit) {
	err := cmd.Wait()
	c.mu.Lock()
	close(l.done)
	asked := l.asked
	c.mu.Unlock()
	if asked {
		return
	}
	select {
	case exits <- Exit{Name: c.spec.Name, Err: err, LogTail: Tail(c.log)}:
	default: // the channel is full when no caller reads it
	}
}

// stop signals the process group, kills it once the grace period has run out, and
// returns when the process is gone.
func (c *child) stop(sig syscall.Signal, gracePeriod time.Duration) {
	c.mu.Lock()
	l := c.life
	if !l.running() {
		c.mu.Unlock()
		return
	}
	l.asked = true
	// Errors mean that the group is gone already; done says when.
	_ = syscall.Kill(-l.pid, sig)
	c.mu.Unlock()
	select {
	case <-l.done:
	case <-time.After(gracePeriod):
		_ = syscall.Kill(-l.pid, syscall.SIGKILL)
		<-l.done
	}
}

// awaitReady polls the probe: a foreign process offers no event to wait for.
func (c *child) awaitReady(ctx context.Context) error {
	if c.spec.Ready == nil {
		return nil
	}
	c.mu.Lock()
	l := c.life
	c.mu.Unlock()
	ctx, expire := context.WithTimeout(ctx, ReadyWithin)
	defer expire()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-l.done:
			cancel(errEnded)
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

// Tail returns the last lines of a log file, or a note that it cannot be read.
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
	n, _ := f.ReadAt(buf, info.Size()-int64(len(buf))) // the log may have been cut meanwhile
	lines := strings.Split(strings.TrimSpace(string(buf[:n])), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
