package realnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/dev/cluster"
)

// stateVariable is the environment variable that contains the state directory for the process inside the
// namespaces.
const stateVariable = "OUTRIGGER_REALNODE_STATE"

// LogDir is the directory of logs in the state directory. If a run fails, LogDir is kept.
const LogDir = "logs"

// Contain runs this program again with the same arguments, in new mount, PID and network namespaces, calls
// inside with a state directory in these namespaces, and returns the exit code. When inside returns, or when
// the program is killed, the kernel removes all remaining processes, mounts and interfaces. Contain then
// removes the control groups and the state directory, but keeps LogDir if code is not 0. After SIGKILL of the
// outer process, these files remain.
func Contain(inside func(state string) int) (code int, err error) {
	// Only the first process of the PID namespace may change the mounts.
	if state := os.Getenv(stateVariable); state != "" && os.Getpid() == 1 {
		if err := isolate(state); err != nil {
			return 1, fmt.Errorf("prepare the namespaces: %w", err)
		}
		return inside(state), nil
	}
	if err := CheckMachine(); err != nil {
		return 1, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	state, err := os.MkdirTemp("", "outrigger-node-")
	if err != nil {
		return 1, fmt.Errorf("create a state directory: %w", err)
	}
	if err := makeControlGroups(controlGroup(state)); err != nil {
		return 1, errors.Join(err, cleanUp(state, false))
	}
	code, err = again(ctx, state)
	return code, errors.Join(err, cleanUp(state, code != 0 && err == nil))
}

// again runs this program in new namespaces. When the first process of a PID namespace ends, the
// kernel kills all other processes of the namespace.
func again(ctx context.Context, state string) (int, error) {
	// The thread is locked, because the kernel sends Pdeathsig when the thread that has started the process
	// ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	program, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, os.Args[1:]...)
	cmd.Env = append(os.Environ(), stateVariable+"="+state)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // Only this process handles Ctrl-C.
	}
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 1, errors.New("interrupted")
	case errors.As(err, &ended):
		return max(ended.ExitCode(), 1), nil
	case err != nil:
		return 1, fmt.Errorf("enter namespaces of our own: %w", err)
	}
	return 0, nil
}

// cleanUp removes the control groups and the state directory, because the kernel removes only the namespaces.
func cleanUp(state string, keepLogs bool) error {
	failed := removeControlGroups(controlGroup(state))
	entries, err := os.ReadDir(state)
	if err != nil {
		return errors.Join(failed, fmt.Errorf("clean up: %w", err))
	}
	for _, entry := range entries {
		if !keepLogs || entry.Name() != LogDir {
			failed = errors.Join(failed, os.RemoveAll(filepath.Join(state, entry.Name())))
		}
	}
	if keepLogs {
		fmt.Fprintln(os.Stderr, "logs are kept in", filepath.Join(state, LogDir))
		return failed
	}
	return errors.Join(failed, os.Remove(state))
}

// isolate prepares the namespaces of this process.
func isolate(state string) error {
	if err := mountOwn(); err != nil {
		return err
	}
	if err := maskKernelSettings(state); err != nil {
		return err
	}
	return raiseLoopback()
}

// mountOwn mounts a new /proc, and empty file systems over the directories in which the container
// runtimes of this machine store their state.
func mountOwn() error {
	// First, all mounts become private, so that the machine does not receive the mounts of this namespace.
	// Then, all mounts become shared inside the namespace, because the kubelet requires shared mounts.
	for _, propagation := range []uintptr{unix.MS_PRIVATE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|propagation, ""); err != nil {
			return fmt.Errorf("change the propagation of mounts: %w", err)
		}
	}
	for _, m := range []struct{ kind, path string }{
		{"proc", "/proc"}, {"tmpfs", "/run"}, {"tmpfs", "/var/lib"}, {"tmpfs", "/var/log"},
	} {
		if err := unix.Mount(m.kind, m.path, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.path, err)
		}
	}
	return nil
}

// kernelSettings returns the settings in /proc/sys that a kubelet requires and that are shared by all
// namespaces. The kubelet does not write a setting that already has the required value.
func kernelSettings() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
}

func maskKernelSettings(state string) error {
	for name, value := range kernelSettings() {
		file := filepath.Join(state, "sys", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("mask kernel settings: %w", err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("mask kernel settings: %w", err)
		}
		if err := unix.Mount(file, filepath.Join("/proc/sys", name), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mask the kernel setting %s: %w", name, err)
		}
	}
	return nil
}

// NodeAddress is the address of the node, on the loopback interface. The kubelet requires an address other
// than 127.0.0.1, and the namespace has no other interface before the first pod starts.
const NodeAddress = "10.89.255.1"

// loopbackAddresses returns additional addresses of the loopback interface. Pods connect to servers at these
// addresses, such as the API server.
func loopbackAddresses() []string { return []string{NodeAddress, cluster.APIServerAddress} }

func raiseLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = unix.Close(socket) }()
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOOPBACK)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback); err != nil {
		return fmt.Errorf("raise the loopback interface: %w", err)
	}
	for i, address := range loopbackAddresses() {
		further, err := unix.NewIfreq(fmt.Sprintf("lo:%d", i+1))
		if err != nil {
			return err
		}
		if err := further.SetInet4Addr(net.ParseIP(address).To4()); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(socket, unix.SIOCSIFADDR, further); err != nil {
			return fmt.Errorf("give the loopback interface the address %s: %w", address, err)
		}
	}
	return nil
}
