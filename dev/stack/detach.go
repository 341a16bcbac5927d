package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// reportFlag names the file in which the parent of a detached supervisor awaits the summary.
const reportFlag = "report-fd"

// detach runs `up` in a session of its own and waits until it is ready or has failed.
func detach(ctx context.Context, o upOptions, out io.Writer) error {
	if err := os.MkdirAll(string(o.at), 0o755); err != nil {
		return fmt.Errorf("create the state folder: %w", err)
	}
	log, err := os.Create(o.at.logFile())
	if err != nil {
		return fmt.Errorf("create the log of the supervisor: %w", err)
	}
	defer func() { _ = log.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe to the supervisor: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the own program: %w", err)
	}
	// No context: the supervisor outlives this command.
	supervisor := exec.CommandContext(context.Background(), self, "up", "--dir="+string(o.at), "--"+reportFlag+"=3",
		fmt.Sprintf("--workers=%d", o.workers), fmt.Sprintf("--nodes=%d", o.nodes),
		"--temporal="+o.temporal,
		fmt.Sprintf("--no-roles=%t", o.noRoles), fmt.Sprintf("--keep=%t", o.keep))
	supervisor.Stdout, supervisor.Stderr = log, log
	supervisor.ExtraFiles = []*os.File{write}
	supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = supervisor.Start()
	_ = write.Close() // only the supervisor keeps it open
	if err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = supervisor.Process.Signal(syscall.SIGTERM) })()
	summary, err := io.ReadAll(read)
	if err == nil && len(summary) > 0 {
		_, err = out.Write(summary)
		return err
	}
	err = errors.Join(err, supervisor.Wait())
	return fmt.Errorf("the stack did not start: %w\n%s", err, process.Tail(o.at.logFile()))
}

// reportTo returns a writer for the summary, and a function that closes it.
func reportTo(fd int, out io.Writer) (io.Writer, func()) {
	if fd == 0 {
		return out, func() {}
	}
	syscall.CloseOnExec(fd) // the processes of the stack would keep it open
	report := os.NewFile(uintptr(fd), "report")
	return report, sync.OnceFunc(func() { _ = report.Close() })
}
