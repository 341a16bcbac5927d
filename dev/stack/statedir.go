package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// stateDir is the folder of a stack's state. The supervisor locks the pid file; the kernel
// releases the lock when the supervisor dies, so the state of a killed stack never looks alive.
type stateDir string

var errUp = errors.New("the stack is up")

func (d stateDir) pidFile() string { return filepath.Join(string(d), "stack.pid") }
func (d stateDir) socket() string  { return filepath.Join(string(d), "stack.sock") }
func (d stateDir) envFile() string { return filepath.Join(string(d), "env") }
func (d stateDir) logFile() string { return filepath.Join(string(d), "stack.log") }

// lock makes this process the supervisor until the file is closed. It fails with errUp when
// another supervisor runs.
func (d stateDir) lock() (*os.File, error) {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return nil, fmt.Errorf("create the state folder: %w", err)
	}
	file, err := os.OpenFile(d.pidFile(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the pid file: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errUp
		}
		return nil, fmt.Errorf("lock %s: %w", d.pidFile(), err)
	}
	if err := errors.Join(file.Truncate(0), writePID(file)); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("write %s: %w", d.pidFile(), err)
	}
	return file, nil
}

func writePID(file *os.File) error {
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// isUp reports whether a supervisor lives.
func (d stateDir) isUp() (bool, error) {
	file, err := os.Open(d.pidFile())
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the pid file: %w", err)
	}
	defer func() { _ = file.Close() }()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// end asks the supervisor to stop everything and waits until it is gone.
func (d stateDir) end(ctx context.Context) error {
	data, err := os.ReadFile(d.pidFile())
	if err != nil {
		return fmt.Errorf("read the pid file: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return fmt.Errorf("read %s: %w", d.pidFile(), err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the supervisor, process %d: %w", pid, err)
	}
	file, err := os.Open(d.pidFile())
	if err != nil {
		return fmt.Errorf("open the pid file: %w", err)
	}
	defer func() { _ = file.Close() }() // which also ends the wait below when ctx ends first
	gone := make(chan error, 1)
	go func() { gone <- syscall.Flock(int(file.Fd()), syscall.LOCK_SH) }()
	select {
	case err := <-gone:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the supervisor, process %d: %w", pid, context.Cause(ctx))
	}
}
