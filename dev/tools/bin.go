package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// bin is the folder of programs. A stamp beside each says which version it is,
// and, unless it was compiled, where it came from.
type bin struct {
	dir string
	// module is the version of what is compiled in tools/: a hash of its go.mod.
	module string
}

func openBin(dir, module string) (bin, error) {
	text, err := os.ReadFile(module)
	if err != nil {
		return bin{}, fmt.Errorf("read the versions of the control plane: %w", err)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return bin{}, fmt.Errorf("find %s: %w", dir, err)
	}
	return bin{dir: dir, module: fmt.Sprintf("%x", sha256.Sum256(text))[:16]}, nil
}

// work is a folder for what is not finished, on the same file system.
func (b bin) work() string { return filepath.Join(b.dir, ".new") }

func (b bin) stamp(name string) string { return filepath.Join(b.dir, ".stamp", name) }

func (b bin) version(p program) string {
	if p.version == "" {
		return b.module
	}
	return "@" + p.version
}

// fits reports whether a program is there in its version and, if compiled is set,
// was compiled.
func (b bin) fits(p program, compiled bool) bool {
	file, err := os.Stat(filepath.Join(b.dir, p.name))
	if err != nil || file.Mode()&0o111 == 0 {
		return false
	}
	text, err := os.ReadFile(b.stamp(p.name))
	if err != nil {
		return false
	}
	version, origin, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return version == b.version(p) && (origin == "" || !compiled)
}

// lock waits until no other run installs anything, and empties the work folder.
func (b bin) lock(ctx context.Context, out io.Writer) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Join(b.dir, ".stamp"), 0o755); err != nil {
		return nil, fmt.Errorf("create bin/: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(b.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of bin/: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		_, _ = fmt.Fprintln(out, "tools: waiting for another run")
		locked := make(chan error, 1)
		go func() { locked <- syscall.Flock(int(file.Fd()), syscall.LOCK_EX) }()
		select {
		case err = <-locked:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock bin/: %w", err)
	}
	// What a killed run left.
	if err := errors.Join(os.RemoveAll(b.work()), os.MkdirAll(b.work(), 0o755)); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("empty %s: %w", b.work(), err)
	}
	return func() {
		_ = os.RemoveAll(b.work()) // the next run does it otherwise
		_ = file.Close()
	}, nil
}

// put moves a finished file to its name. The stamp goes first and comes last: a run
// that is killed in between leaves a program that does not fit.
func (b bin) put(p program, file, origin string) error {
	text := b.version(p) + "\n"
	if origin != "" {
		text += origin + "\n"
	}
	stamp := filepath.Join(b.work(), p.name+".stamp")
	for _, step := range []func() error{
		func() error { return os.Chmod(file, 0o755) },
		func() error { return os.WriteFile(stamp, []byte(text), 0o644) },
		func() error { return os.RemoveAll(b.stamp(p.name)) },
		func() error { return os.Rename(file, filepath.Join(b.dir, p.name)) },
		func() error { return os.Rename(stamp, b.stamp(p.name)) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("install %s: %w", p.name, err)
		}
	}
	return nil
}
