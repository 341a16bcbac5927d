package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/cluster/process"
)

// supervisor runs a stack. Other commands call the exported methods of the supervisor over the
// control socket.
type supervisor struct {
	at stateDir
	// started is closed when cluster is set and all processes are ready.
	started chan struct{}
	cluster *cluster.Cluster
	summary string
	stop    context.CancelFunc
}

// serve serves the methods of the supervisor until the socket is closed.
func (s *supervisor) serve(socket net.Listener) error {
	server := rpc.NewServer()
	go accept(socket, server)
	return server.RegisterName("Supervisor", s)
}

// accept serves the connections of a socket until the socket is closed. accept replaces Server.Accept, which
// logs an error when the socket is closed.
func accept(socket net.Listener, server *rpc.Server) {
	for connection, err := socket.Accept(); err == nil; connection, err = socket.Accept() {
		go server.ServeConn(connection)
	}
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

// Control stops, kills or starts the processes of a role, and returns the names of the processes. The request
// contains the action and the role. If the role has no process, the action start starts a new process.
func (s *supervisor) Control(request [2]string, names *[]string) error {
	<-s.started
	ctx := context.Background() // The shutdown of the stack also ends a start that is in progress.
	action, role := request[0], request[1]
	act := map[string]func(string) error{
		"stop": s.cluster.Stop, "kill": s.cluster.Kill,
		"start": func(name string) error { return s.cluster.StartAgain(ctx, name) },
	}[action]
	*names = s.resolve(role)
	if len(*names) == 0 && action == "start" && cluster.IsRole(role) {
		if role == cluster.Worker {
			role += "-1"
		}
		*names, act = []string{role}, func(name string) error { return s.startRole(ctx, name) }
	}
	if len(*names) == 0 {
		return fmt.Errorf("%q: %w; `make status` lists them", role, process.ErrUnknown)
	}
	for _, name := range *names {
		if err := act(name); err != nil {
			return errors.Join(err, s.writeEnv())
		}
	}
	return s.writeEnv()
}

// startRole starts a new process of a role.
func (s *supervisor) startRole(ctx context.Context, name string) error {
	var args []string
	if strings.HasPrefix(name, cluster.Operator) {
		args = []string{"--leader-elect=true"} // Another operator may run.
	}
	_, err := s.cluster.StartRole(ctx, name, args...)
	return err
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

func controlCommand(at *stateDir, action, short string) *cobra.Command {
	cmd := command(action+" ROLE", short, func(cmd *cobra.Command, args []string) error {
		var names []string
		if err := at.call(cmd.Context(), "Control", [2]string{action, args[0]}, &names); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", action, strings.Join(names, ", "))
		return err
	})
	cmd.Args = cobra.ExactArgs(1)
	cmd.Long = short + `. ROLE is operator, webhook, worker (all of them), worker-2, temporal (all of it),
apiserver, etcd, controller-manager, scheduler or kwok. In a stack with a Temporal cluster, ROLE can also be temporal-frontend,
temporal-history-1, temporal-history-2, temporal-matching, temporal-worker or postgres.`
	return cmd
}

func statusCommand(at *stateDir) *cobra.Command {
	return command("status", "List the processes", func(cmd *cobra.Command, _ []string) error {
		var processes []process.Status
		if err := at.call(cmd.Context(), "Status", "", &processes); err != nil {
			return err
		}
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0) // Only Flush writes, so only Flush can fail.
		_, _ = fmt.Fprint(table, "NAME\tSTATE\tPID\tLOG\n")
		for _, p := range processes {
			state, pid := "stopped", "-"
			if p.Running {
				state, pid = "running", strconv.Itoa(p.PID)
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", p.Name, state, pid, p.Log)
		}
		return table.Flush()
	})
}

func downCommand(at *stateDir) *cobra.Command {
	return command("down", "Stop everything", func(cmd *cobra.Command, _ []string) error {
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
	})
}
