package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
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

func (d stateDir) envFile() string { return filepath.Join(string(d), "env") }
func (d stateDir) logFile() string { return filepath.Join(string(d), "stack.log") }

// socket returns the name of the control socket of the directory. The socket is abstract: it has no file, and the
// kernel removes the socket of a killed supervisor. Any local user may call a supervisor, as any local user may use
// the etcd of the stack.
func (d stateDir) socket() (string, error) {
	path, err := filepath.Abs(string(d))
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fmt.Errorf("find the state directory: %w", err)
	}
	return fmt.Sprintf("@outrigger-%x", sha256.Sum256([]byte(path))), nil
}

// listen makes this process the supervisor until the returned socket is closed. If another supervisor runs,
// listen returns errUp.
func (d stateDir) listen(ctx context.Context) (net.Listener, error) {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	name, err := d.socket()
	if err != nil {
		return nil, err
	}
	socket, err := (&net.ListenConfig{}).Listen(ctx, "unix", name)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, errUp
	}
	return socket, err
}

// call calls a method of the supervisor. If no supervisor runs, call returns errDown. Most methods wait until
// the stack is up.
func (d stateDir) call(ctx context.Context, method string, argument, result any) error {
	name, err := d.socket()
	if errors.Is(err, os.ErrNotExist) {
		return errDown
	}
	if err != nil {
		return err
	}
	client, err := rpc.Dial("unix", name)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errDown
	}
	if err != nil {
		return fmt.Errorf("call the supervisor: %w", err)
	}
	defer func() { _ = client.Close() }()
	defer context.AfterFunc(ctx, func() { _ = client.Close() })()
	return client.Call("Supervisor."+method, argument, result)
}
