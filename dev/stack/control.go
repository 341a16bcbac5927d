package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/cluster/process"
)

// supervisor runs a stack. Other commands call the exported methods of the supervisor over a unix
// socket.
type supervisor struct {
	at stateDir
	// started is closed when cluster is set and all processes are ready.
	started chan struct{}
	cluster *cluster.Cluster
	summary string
	stop    context.CancelFunc
}

// listen serves the methods of the supervisor until the returned function is called.
func (s *supervisor) listen(ctx context.Context) (func(), error) {
	if err := os.RemoveAll(s.at.socket()); err != nil { // A killed supervisor does not remove its socket.
		return nil, fmt.Errorf("remove the old control socket: %w", err)
	}
	socket, err := (&net.ListenConfig{}).Listen(ctx, "unix", s.at.socket())
	if err != nil {
		return nil, fmt.Errorf("open the control socket (its path must be short): %w", err)
	}
	server := rpc.NewServer()
	go func() {
		// Server.Accept is not used, because Server.Accept logs the end of the socket.
		for connection, err := socket.Accept(); err == nil; connection, err = socket.Accept() {
			go server.ServeConn(connection)
		}
	}()
	return func() { _ = socket.Close() }, server.RegisterName("Supervisor", s)
}

// Summary waits until the stack is ready, and returns the description of the stack for users.
func (s *supervisor) Summary(_ string, text *string) error { //nolint:unparam // net/rpc needs the error
	<-s.started
	*text = s.summary
	return nil
}

// Status returns the state of the processes.
func (s *supervisor) Status(_ string, processes *[]process.Status) error { //nolint:unparam // net/rpc needs the error
	<-s.started
	*processes = s.cluster.Processes()
	return nil
}

// Down stops the stack. The call does not return. The connection ends when the supervisor ends, so the caller
// waits until the stack is down.
func (s *supervisor) Down(string, *string) error {
	s.stop()
	select {}
}

// Stop stops the processes that name selects, and returns the names of the processes.
func (s *supervisor) Stop(name string, names *[]string) error {
	<-s.started
	return s.each(name, names, s.cluster.Stop)
}

// Kill kills the processes that name selects, and returns the names of the processes.
func (s *supervisor) Kill(name string, names *[]string) error {
	<-s.started
	return s.each(name, names, s.cluster.Kill)
}

// Start starts the processes that name selects again, or a new role if name is a role without a process. Start
// returns the names of the started processes.
func (s *supervisor) Start(name string, names *[]string) error {
	<-s.started
	ctx := context.Background() // The shutdown of the stack ends the start.
	if len(s.resolve(name)) > 0 || !cluster.IsRole(name) {
		return s.each(name, names, func(each string) error { return s.cluster.StartAgain(ctx, each) })
	}
	if name == cluster.Worker {
		name += "-1"
	}
	*names = []string{name}
	var args []string
	if strings.HasPrefix(name, cluster.Operator) {
		args = []string{"--leader-elect=true"} // Another operator may run.
	}
	_, err := s.cluster.StartRole(ctx, name, args...)
	return errors.Join(err, s.writeEnv())
}

func (s *supervisor) each(name string, names *[]string, act func(string) error) error {
	*names = s.resolve(name)
	if len(*names) == 0 {
		return fmt.Errorf("%q: %w; `make status` lists them", name, process.ErrUnknown)
	}
	for _, each := range *names {
		if err := act(each); err != nil {
			return errors.Join(err, s.writeEnv())
		}
	}
	return s.writeEnv()
}

// resolve returns the names of the processes of a role. The role worker selects all workers. resolve returns
// the name temporal unchanged, because the cluster resolves this name.
func (s *supervisor) resolve(name string) []string {
	if name == cluster.Temporal {
		return []string{name}
	}
	var names []string
	for _, p := range s.cluster.Processes() {
		if p.Name == name || strings.HasPrefix(p.Name, name+"-") && name == cluster.Worker {
			names = append(names, p.Name)
		}
	}
	return names
}

func controlCommand(at *stateDir, method, short string) *cobra.Command {
	action := strings.ToLower(method)
	return &cobra.Command{
		Use:   action + " ROLE",
		Short: short,
		Long: short + `. ROLE is operator, webhook, worker (all of them), worker-2, temporal (all of it),
apiserver, etcd, controller-manager, scheduler or kwok. In a stack with a Temporal cluster, ROLE can also be temporal-frontend,
temporal-history-1, temporal-history-2, temporal-matching, temporal-worker or postgres.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var names []string
			if err := at.call(cmd.Context(), method, args[0], &names); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", action, strings.Join(names, ", "))
			return err
		},
	}
}

func statusCommand(at *stateDir) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "List the processes",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var processes []process.Status
			if err := at.call(cmd.Context(), "Status", "", &processes); err != nil {
				return err
			}
			return printStatus(cmd.OutOrStdout(), processes)
		},
	}
}

func printStatus(out io.Writer, processes []process.Status) error {
	var rows strings.Builder
	rows.WriteString("NAME\tSTATE\tPID\tLOG\n")
	for _, p := range processes {
		state, pid := "stopped", "-"
		if p.Running {
			state, pid = "running", strconv.Itoa(p.PID)
		}
		rows.WriteString(strings.Join([]string{p.Name, state, pid, p.Log}, "\t") + "\n")
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(table, rows.String()); err != nil {
		return err
	}
	return table.Flush()
}

func downCommand(at *stateDir) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop everything",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			message := "the stack is down"
			err := at.call(cmd.Context(), "Down", "", new(string))
			if errors.Is(err, errDown) {
				message, err = "nothing is running", nil
			}
			// An unexpected end of the connection means that the supervisor has ended.
			if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), message)
			return err
		},
	}
}
