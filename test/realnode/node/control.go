package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// siteFile is the path of the file that contains the site as JSON. The process of the node keeps the file
// locked.
const siteFile = programs + "/running.json"

var (
	errNotRunning = errors.New("no node runs: make node starts one")
	errStarts     = errors.New("the node still starts: try again")
)

// lockSite locks siteFile. If how is LOCK_EX, lockSite waits until the node has ended. If how also contains
// LOCK_NB, lockSite returns EWOULDBLOCK while the node runs.
func lockSite(how int) (*os.File, error) {
	file, err := os.OpenFile(siteFile, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the file of the node (run the command in the root of the repository): %w", err)
	}
	if err := unix.Flock(int(file.Fd()), how); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", siteFile, err)
	}
	return file, nil
}

// running returns the site of the running node. If no node runs, running returns errNotRunning.
func running() (found site, err error) {
	file, err := lockSite(unix.LOCK_EX | unix.LOCK_NB)
	if err == nil {
		_ = file.Close()
		return site{}, errNotRunning
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return site{}, err
	}
	data, err := os.ReadFile(siteFile)
	if err != nil {
		return site{}, fmt.Errorf("read the file of the node: %w", err)
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return site{}, errStarts
	}
	return found, nil
}

// write replaces the content of the locked file.
func (s *site) write(file *os.File) error {
	data, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(file.Name(), data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", siteFile, err)
	}
	return nil
}

// up starts the node in a new session, and returns when the node is ready. The process of the node inherits
// the lock of the file.
func up(out io.Writer) error {
	lock, err := lockSite(unix.LOCK_EX | unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("a node runs already: make node-shell enters it, and make node-down stops it")
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := lock.Truncate(0); err != nil {
		return fmt.Errorf("empty %s: %w", siteFile, err)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	log, err := os.Create(programs + "/node.log")
	if err != nil {
		return fmt.Errorf("create the log of the node: %w", err)
	}
	defer func() { _ = log.Close() }()
	// The process outlives this command.
	process := exec.CommandContext(context.Background(), self, runCommand)
	process.Stderr, process.ExtraFiles = log, []*os.File{lock}
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	answer, err := process.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the node: %w", err)
	}
	if err := process.Start(); err != nil {
		return fmt.Errorf("start the node: %w", err)
	}
	// The process ID is written first, so that make node-down can stop the node after an interrupted start.
	ready := site{PID: process.Process.Pid}
	if err := ready.write(lock); err != nil {
		return err
	}
	if err := json.NewDecoder(answer).Decode(&ready); err != nil {
		reason, _ := os.ReadFile(log.Name())
		return fmt.Errorf("the node did not start: %s: %w", strings.TrimSpace(string(reason)), errors.Join(err, process.Wait()))
	}
	ready.PID = process.Process.Pid
	if err := ready.write(lock); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `The node is up, with the images docker.io/local/app:1, side:v1 and side:v2.
  make node-shell    kubectl, kubectl sidecarset, ctr and crane reach the node; crane push image.tar %s/name:tag
  make node-down     stops the node
  logs               %s
`, registry, filepath.Join(ready.State, "logs"))
	return err
}

// shell replaces this process with command, or with a shell, in the namespaces of the node.
func shell(command []string) error {
	node, err := running()
	if err != nil {
		return err
	}
	if node.State == "" {
		return errStarts
	}
	pid, err := childOf(node.PID)
	if err != nil {
		return err
	}
	program, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("apt-get install util-linux: %w", err)
	}
	at, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	if len(command) == 0 {
		command = []string{"bash"}
	}
	args := append([]string{program, "--target=" + pid, "--mount", "--pid", "--net", "--",
		"env", "--chdir=" + at, "PATH=" + filepath.Join(at, bin) + ":" + os.Getenv("PATH"),
		"KUBECONFIG=" + node.Kubeconfig, "TEMPORAL_ADDRESS=" + node.Temporal,
		"CONTAINERD_ADDRESS=" + filepath.Join(node.State, "containerd.sock"), "CONTAINERD_NAMESPACE=k8s.io"}, command...)
	if err := unix.Exec(program, args, os.Environ()); err != nil {
		return fmt.Errorf("enter the namespaces of the node: %w", err)
	}
	return nil
}

// childOf returns the only child of the process of the node. The child is the first process in the
// namespaces of the node.
func childOf(pid int) (string, error) {
	lists, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	if err != nil {
		return "", fmt.Errorf("find the processes of the node: %w", err)
	}
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err == nil && len(strings.Fields(string(children))) > 0 { // A thread may have ended.
			return strings.Fields(string(children))[0], nil
		}
	}
	return "", fmt.Errorf("process %d has no child: the node ends", pid)
}

// down stops the node, and waits until all processes of the node have ended. If no node runs, down does
// nothing.
func down() error {
	node, err := running()
	if errors.Is(err, errNotRunning) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := unix.Kill(node.PID, unix.SIGTERM); err != nil {
		return fmt.Errorf("stop the node: %w", err)
	}
	file, err := lockSite(unix.LOCK_EX)
	if err != nil {
		return err
	}
	return file.Close()
}
