package process

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const parentRole = "PROCESS_TEST_PARENT"

// TestMain lets the test binary also be the parent that gets killed.
func TestMain(m *testing.M) {
	if logs := os.Getenv(parentRole); logs != "" {
		g := NewGroup(logs)
		if err := g.Start(context.Background(), sleeper("orphan")); err != nil {
			panic(err)
		}
		fmt.Println(g.Processes()[0].PID)
		select {}
	}
	os.Exit(m.Run())
}

func sleeper(name string) Spec {
	return shell(name, "exec sleep 1000")
}

func shell(name, script string) Spec {
	return Spec{Name: name, Path: "/bin/sh", Args: []string{"-c", script}}
}

func newGroup(t *testing.T) *Group {
	g := NewGroup(t.TempDir())
	t.Cleanup(g.Shutdown)
	return g
}

// handle returns a pidfd, which becomes readable when the process ends.
func handle(t *testing.T, pid int) int {
	fd, err := unix.PidfdOpen(pid, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

func requireGone(t *testing.T, fd int) {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	require.NoError(t, err)
	require.Equal(t, 1, n, "the process still runs")
}

func TestStartReturnsOnceTheProcessIsReady(t *testing.T) {
	g := newGroup(t)
	file := filepath.Join(t.TempDir(), "ready")
	spec := shell("server", `echo "$GREETING" >"$0"; exec sleep 1000`)
	spec.Args = append(spec.Args, file)
	spec.Env = []string{"GREETING=hello"}
	spec.Ready = func(context.Context) error {
		data, err := os.ReadFile(file)
		if err == nil && string(data) != "hello\n" {
			err = fmt.Errorf("read %q", data)
		}
		return err
	}
	require.NoError(t, g.Start(t.Context(), spec))
	require.FileExists(t, file)
	status, err := g.Process("server")
	require.NoError(t, err)
	assert.Equal(t, Status{Name: "server", PID: status.PID, Running: true, Log: filepath.Join(g.logs, "server.log")}, status)
	assert.NoError(t, syscall.Kill(status.PID, 0))
}

func TestStartFailsWithTheLogTailWhenTheProcessEnds(t *testing.T) {
	g := newGroup(t)
	spec := shell("broken", "echo port is taken >&2; exit 3")
	spec.Ready = func(context.Context) error { return os.ErrNotExist }
	err := g.Start(t.Context(), spec)
	require.ErrorIs(t, err, errEnded)
	assert.ErrorContains(t, err, "port is taken")
}

func TestStartFailsWithTheProbeWhenTheContextEnds(t *testing.T) {
	g := newGroup(t)
	ctx, cancel := context.WithCancel(t.Context())
	spec := sleeper("slow")
	spec.Ready = func(context.Context) error {
		cancel()
		return os.ErrNotExist
	}
	err := g.Start(ctx, spec)
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, os.ErrNotExist.Error())
	status, err := g.Process("slow")
	require.NoError(t, err)
	assert.False(t, status.Running, "a process that did not become ready is killed")
}

func TestStartRejectsAMissingProgramAndADuplicateName(t *testing.T) {
	g := newGroup(t)
	require.ErrorIs(t, g.Start(t.Context(), Spec{Name: "none", Path: "/no/such/program"}), os.ErrNotExist)
	require.NoError(t, g.Start(t.Context(), sleeper("one")))
	require.ErrorContains(t, g.Start(t.Context(), sleeper("one")), "exists already")
}

func TestOnlyAnUnaskedEndIsReported(t *testing.T) {
	g := newGroup(t)
	require.NoError(t, g.Start(t.Context(), sleeper("stopped")))
	require.NoError(t, g.Start(t.Context(), sleeper("killed")))
	require.NoError(t, g.Stop("stopped"))
	require.NoError(t, g.Kill("killed"))
	require.NoError(t, g.Start(t.Context(), shell("crashed", "echo out of luck; exit 7")))

	exit := <-g.Exited()
	var code *exec.ExitError
	require.ErrorAs(t, exit.Err, &code)
	assert.Equal(t, 7, code.ExitCode())
	exit.Err = nil
	assert.Equal(t, Exit{Name: "crashed", LogTail: "out of luck"}, exit)
	assert.Empty(t, g.Exited())
}

func TestAProcessIsStoppedAndStartedAgainByName(t *testing.T) {
	for name, end := range map[string]func(*Group, string) error{"stop": (*Group).Stop, "kill": (*Group).Kill} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t)
			require.NoError(t, g.Start(t.Context(), sleeper("one")))
			first := g.Processes()[0]
			gone := handle(t, first.PID)

			require.NoError(t, end(g, "one"))
			requireGone(t, gone)
			assert.Equal(t, []Status{{Name: "one", Log: first.Log}}, g.Processes())
			require.NoError(t, end(g, "one"), "ending it twice is no error")

			require.NoError(t, g.StartAgain(t.Context(), "one"))
			second := g.Processes()[0]
			assert.True(t, second.Running)
			assert.NotEqual(t, first.PID, second.PID)
			require.NoError(t, g.StartAgain(t.Context(), "one"))
			assert.Equal(t, second, g.Processes()[0], "a running process is left alone")
		})
	}
}

func TestUnknownNamesAreRejected(t *testing.T) {
	g := newGroup(t)
	_, err := g.Process("ghost")
	for _, err := range []error{err, g.Stop("ghost"), g.Kill("ghost"), g.StartAgain(t.Context(), "ghost")} {
		assert.ErrorIs(t, err, ErrUnknown)
	}
}

func TestAProcessThatIgnoresSIGTERMIsKilledWithItsChildren(t *testing.T) {
	g := newGroup(t)
	spec := shell("stubborn", `trap "" TERM; sleep 1000 & echo $!; while :; do wait; done`)
	log := filepath.Join(g.logs, "stubborn.log")
	spec.Ready = func(context.Context) error {
		if Tail(log) == "" {
			return os.ErrNotExist
		}
		return nil
	}
	require.NoError(t, g.Start(t.Context(), spec))
	var grandchild int
	_, err := fmt.Sscan(Tail(log), &grandchild)
	require.NoError(t, err)
	gone := handle(t, grandchild)

	c := g.children[0]
	c.stop(time.Millisecond)
	assert.False(t, c.status().Running)
	requireGone(t, gone)
}

func TestAProcessIsStoppedByItsStopSignal(t *testing.T) {
	for name, end := range map[string]func(*Group) error{
		"stop":     func(g *Group) error { return g.Stop("polite") },
		"shutdown": func(g *Group) error { g.Shutdown(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t)
			spec := shell("polite", `trap "" TERM; trap "echo bye; exit" INT; echo up; while :; do sleep 0.01; done`)
			spec.StopSignal = syscall.SIGINT
			log := filepath.Join(g.logs, "polite.log")
			spec.Ready = func(context.Context) error {
				if Tail(log) != "up" {
					return os.ErrNotExist
				}
				return nil
			}
			require.NoError(t, g.Start(t.Context(), spec))
			require.NoError(t, end(g))
			assert.Equal(t, "up\nbye", Tail(log))
		})
	}
}

func TestShutdownEndsTheLastStartedFirstAndStartsNothingMore(t *testing.T) {
	g := newGroup(t)
	order := filepath.Join(t.TempDir(), "order")
	for _, name := range []string{"first", "second", "third"} {
		spec := shell(name, fmt.Sprintf(`trap "echo %s >>%s; exit" TERM; echo up; while :; do sleep 0.01; done`, name, order))
		spec.Ready = func(context.Context) error {
			if Tail(filepath.Join(g.logs, name+".log")) != "up" {
				return os.ErrNotExist
			}
			return nil
		}
		require.NoError(t, g.Start(t.Context(), spec))
	}
	g.Shutdown()
	data, err := os.ReadFile(order)
	require.NoError(t, err)
	assert.Equal(t, "third\nsecond\nfirst\n", string(data))
	require.ErrorIs(t, g.Start(t.Context(), sleeper("late")), ErrShutdown)
	g.Shutdown()
}

func TestNoChildOutlivesAParentThatIsKilled(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentRole+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	var orphan int
	_, err = fmt.Sscan(line, &orphan)
	require.NoError(t, err)
	gone := handle(t, orphan)

	require.NoError(t, parent.Process.Kill())
	requireGone(t, gone)
	require.Error(t, parent.Wait())
}

func TestTailKeepsTheLastLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(file, []byte(strings.Repeat("old\n", 5000)+strings.Repeat("new\n", tailLines)), 0o600))
	assert.Equal(t, strings.TrimSpace(strings.Repeat("new\n", tailLines)), Tail(file))
	assert.Contains(t, Tail(file+"-missing"), "no such file")
}

func TestFreezeSuspendsAProcessUntilThaw(t *testing.T) {
	g := newGroup(t)
	require.ErrorIs(t, g.Freeze("nobody"), ErrUnknown)
	require.NoError(t, g.Start(t.Context(), sleeper("one")))
	status, err := g.Process("one")
	require.NoError(t, err)
	for _, c := range []struct {
		signal func(string) error
		state  string
	}{{g.Freeze, "T"}, {g.Thaw, "S"}} {
		require.NoError(t, c.signal("one"))
		require.Eventually(t, func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", status.PID))
			return err == nil && strings.Fields(string(stat))[2] == c.state
		}, 10*time.Second, time.Millisecond, c.state)
	}
	require.NoError(t, g.Kill("one"))
	require.ErrorIs(t, g.Thaw("one"), errEnded)
}
