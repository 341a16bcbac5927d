package main

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"path/filepath"
	"syscall"
)

var (
	errUp   = errors.New("the stack is up")
	errDown = errors.New("the stack is not running; start it with `make up`")
)

// stateDir is the directory of the state of a stack.
type stateDir string

func (d stateDir) lockFile() string { return filepath.Join(string(d), "stack.lock") }
func (d stateDir) socket() string   { return filepath.Join(string(d), "stack.sock") }
func (d stateDir) envFile() string  { return filepath.Join(string(d), "env") }
func (d stateDir) logFile() string  { return filepath.Join(string(d), "stack.log") }

// lock makes this process the supervisor until the returned file is closed. If another supervisor runs, lock
// returns errUp. The kernel releases the lock of a killed supervisor.
func (d stateDir) lock() (*os.File, error) {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	file, err := os.Create(d.lockFile())
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errUp
		}
		return nil, fmt.Errorf("lock %s: %w", d.lockFile(), err)
	}
	return file, nil
}

// call calls a method of the supervisor. If no supervisor runs, call returns errDown. Most methods wait until
// the stack is up.
func (d stateDir) call(ctx context.Context, method, name string, result any) error {
	client, err := rpc.Dial("unix", d.socket())
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return errDown
	}
	if err != nil {
		return fmt.Errorf("call the supervisor: %w", err)
	}
	defer func() { _ = client.Close() }()
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	return client.Call("Supervisor."+method, name, result)
}
