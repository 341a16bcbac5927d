package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Spec says how to run one process and how to know that it serves.
type Spec struct {
	// Name is unique in its Group and names the log file.
	Name string
	Path string
	Args []string
	// Env is added to the parent's environment, as KEY=value.
	Env []string
	// System holds further attributes. The process has a group of its own and dies with us
	// in any case.
	System syscall.SysProcAttr
	// StopSignal asks it to end; SIGTERM by default.
	StopSignal syscall.Signal
	// Ready is asked again and again until it returns nil; nil means ready at once.
	Ready func(ctx context.Context) error
}

func (s Spec) stopSignal() syscall.Signal {
	if s.StopSignal == 0 {
		return syscall.SIGTERM
	}
	return s.StopSignal
}

// Status is the state of one process.
type Status struct {
	Name    string `json:"name"`
	PID     int    `json:"pid"`
	Running bool   `json:"running"`
	Log     string `json:"log"`
}

// Exit reports a process that ended without being asked to.
type Exit struct {
	Name string
	// Err is nil when the process ended with code 0.
	Err error
	// LogTail holds the last lines of its log.
	LogTail string
}

// StopWithin is how long a process may take to end after its StopSignal.
const StopWithin = 10 * time.Second

// ReadyWithin is how long a process may take from its start until it is ready.
const ReadyWithin = 2 * time.Minute

var (
	// ErrUnknown says that no process of that name was ever started.
	ErrUnknown = errors.New("unknown process")
	// ErrShutdown says that the group was shut down.
	ErrShutdown = errors.New("the process group is shut down")
)

// Group is a set of processes that are started and stopped by name.
// Its methods may be called from several goroutines.
type Group struct {
	logs   string
	spawns chan spawn
	exits  chan Exit
	closed chan struct{}
	once   sync.Once

	mu       sync.Mutex
	children []*child // in the order of their first start
}

type spawn struct {
	cmd *exec.Cmd
	err chan<- error
}

// NewGroup returns an empty group whose processes log to <logs>/<name>.log.
// Shutdown frees it.
func NewGroup(logs string) *Group {
	g := &Group{logs: logs, spawns: make(chan spawn), exits: make(chan Exit, 64), closed: make(chan struct{})}
	go g.fork()
	return g
}

// fork starts every child from one thread that lives as long as the group,
// because the kernel ties Pdeathsig to the forking thread, not to the process.
func (g *Group) fork() {
	runtime.LockOSThread()
	for {
		select {
		case s := <-g.spawns:
			s.err <- s.cmd.Start()
		case <-g.closed:
			return
		}
	}
}

func (g *Group) spawn(cmd *exec.Cmd) error {
	started := make(chan error)
	select {
	case g.spawns <- spawn{cmd, started}:
		return <-started
	case <-g.closed:
		return ErrShutdown
	}
}

// Exited delivers the processes that end without being asked to. Reports that
// are not read are dropped once 64 are waiting.
func (g *Group) Exited() <-chan Exit { return g.exits }

// Start runs a new process and waits until it is ready, it ends, or ctx does.
// On failure it is killed, and the error holds the tail of its log.
func (g *Group) Start(ctx context.Context, spec Spec) error {
	c, err := g.add(spec)
	if err != nil {
		return err
	}
	return g.run(ctx, c)
}

// StartAgain runs a stopped process with the arguments it had; a running one
// is left alone. It fails with ErrUnknown for a name that was never started.
func (g *Group) StartAgain(ctx context.Context, name string) error {
	c, err := g.find(name)
	if err != nil {
		return err
	}
	return g.run(ctx, c)
}

// Stop sends the process's StopSignal and, after StopWithin, SIGKILL to the whole process group,
// and returns when the process is gone. Stopping a stopped process is no error.
func (g *Group) Stop(name string) error {
	c, err := g.find(name)
	if err != nil {
		return err
	}
	c.stop(c.spec.stopSignal(), StopWithin)
	return nil
}

// Kill sends SIGKILL to the whole process group and returns when the process is gone.
func (g *Group) Kill(name string) error {
	c, err := g.find(name)
	if err != nil {
		return err
	}
	c.stop(syscall.SIGKILL, StopWithin)
	return nil
}

// Freeze stops the process group until Thaw. To other processes it looks like a machine
// without processor time.
func (g *Group) Freeze(name string) error { return g.signal(name, syscall.SIGSTOP) }

// Thaw continues a frozen process group.
func (g *Group) Thaw(name string) error { return g.signal(name, syscall.SIGCONT) }

func (g *Group) signal(name string, sig syscall.Signal) error {
	c, err := g.find(name)
	if err != nil {
		return err
	}
	status := c.status()
	if !status.Running {
		return fmt.Errorf("send %s to process %s: %w", sig, name, errEnded)
	}
	if err := syscall.Kill(-status.PID, sig); err != nil {
		return fmt.Errorf("send %s to process %s: %w", sig, name, err)
	}
	return nil
}

// Process returns the state of the named process, or ErrUnknown.
func (g *Group) Process(name string) (Status, error) {
	c, err := g.find(name)
	if err != nil {
		return Status{}, err
	}
	return c.status(), nil
}

// Processes returns all processes in the order of their first start.
func (g *Group) Processes() []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]Status, 0, len(g.children))
	for _, c := range g.children {
		all = append(all, c.status())
	}
	return all
}

// Shutdown stops every process, the last started first, and frees the group,
// which starts nothing afterwards. A second call does nothing.
func (g *Group) Shutdown() {
	g.once.Do(func() {
		g.mu.Lock()
		children := slices.Clone(g.children)
		g.mu.Unlock()
		for _, c := range slices.Backward(children) {
			c.stop(c.spec.stopSignal(), StopWithin)
		}
		close(g.closed)
	})
}

func (g *Group) add(spec Spec) (*child, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.children {
		if c.spec.Name == spec.Name {
			return nil, fmt.Errorf("process %s exists already; start it again by name", spec.Name)
		}
	}
	c := &child{spec: spec, log: filepath.Join(g.logs, spec.Name+".log")}
	g.children = append(g.children, c)
	return c, nil
}

func (g *Group) find(name string) (*child, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.children {
		if c.spec.Name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("process %q: %w", name, ErrUnknown)
}

// run starts the child unless it runs, and waits until it is ready.
func (g *Group) run(ctx context.Context, c *child) error {
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.status().Running {
		return nil
	}
	if err := os.MkdirAll(g.logs, 0o755); err != nil {
		return fmt.Errorf("create the log folder of process %s: %w", c.spec.Name, err)
	}
	if err := c.launch(g); err != nil {
		return err
	}
	if err := c.awaitReady(ctx); err != nil {
		c.stop(syscall.SIGKILL, StopWithin)
		return fmt.Errorf("%w; last lines of %s:\n%s", err, c.log, Tail(c.log))
	}
	return nil
}
