package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/cluster/process"
)

var errDown = errors.New("the stack is not running; start it with `make up`")

// supervisor answers the other commands over a unix socket while `up` runs.
type supervisor struct {
	cluster *cluster.Cluster
	at      stateDir
}

// listen serves GET /status and POST /{action}/{name} until the returned function is called.
func (s *supervisor) listen(ctx context.Context) (func(), error) {
	if err := os.RemoveAll(s.at.socket()); err != nil { // left by a killed supervisor
		return nil, fmt.Errorf("remove the old control socket: %w", err)
	}
	socket, err := (&net.ListenConfig{}).Listen(ctx, "unix", s.at.socket())
	if err != nil {
		return nil, fmt.Errorf("open the control socket (its path must be short): %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.cluster.Processes(), nil) })
	mux.HandleFunc("POST /{action}/{name}", func(w http.ResponseWriter, r *http.Request) {
		names, err := s.act(r.Context(), r.PathValue("action"), r.PathValue("name"))
		answer(w, names, errors.Join(err, s.writeEnv()))
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(socket) }() // always ErrServerClosed
	return func() { _ = server.Close() }, nil
}

func answer(w http.ResponseWriter, result any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(result) // the caller may be gone
}

// act applies an action to every process of a name and returns their names.
func (s *supervisor) act(ctx context.Context, action, name string) ([]string, error) {
	names := s.resolve(name)
	if len(names) == 0 && action == "start" && cluster.IsRole(name) {
		return s.startNew(ctx, name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%q: %w; `make status` lists them", name, process.ErrUnknown)
	}
	for _, each := range names {
		var err error
		switch action {
		case "stop":
			err = s.cluster.Stop(each)
		case "kill":
			err = s.cluster.Kill(each)
		case "start":
			err = s.cluster.StartAgain(ctx, each)
		default:
			err = fmt.Errorf("action %q is none of stop, kill, start", action)
		}
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// startNew starts a role that does not exist yet.
func (s *supervisor) startNew(ctx context.Context, name string) ([]string, error) {
	if name == cluster.Worker {
		name += "-1"
	}
	role, err := s.cluster.StartRole(ctx, name)
	if err != nil {
		return nil, err
	}
	return []string{role.Name}, nil
}

// resolve turns worker into all workers and leaves other names as they are. The cluster
// resolves temporal.
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

// ask sends one request to the supervisor and decodes its answer into result.
func ask(ctx context.Context, at stateDir, method, path string, result any) error {
	if up, err := at.isUp(); err != nil || !up {
		return errors.Join(err, errDown)
	}
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", at.socket())
		},
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://stack"+path, nil)
	if err != nil {
		return fmt.Errorf("ask the supervisor: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the supervisor (it may still be starting): %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body) // a partial message is better than none
		return errors.New(strings.TrimSpace(string(text)))
	}
	return json.NewDecoder(response.Body).Decode(result)
}

func controlCommand(at *stateDir, action, short string) *cobra.Command {
	return &cobra.Command{
		Use:   action + " ROLE",
		Short: short,
		Long: short + `. ROLE is operator, webhook, worker (all of them), worker-2, temporal (all of it),
apiserver, etcd, controller-manager, scheduler or kwok; of a Temporal cluster also temporal-frontend,
temporal-history-1, temporal-history-2, temporal-matching, temporal-worker or postgres.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var names []string
			if err := ask(cmd.Context(), *at, http.MethodPost, "/"+action+"/"+args[0], &names); err != nil {
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
			if err := ask(cmd.Context(), *at, http.MethodGet, "/status", &processes); err != nil {
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
			up, err := at.isUp()
			if err != nil {
				return err
			}
			message := "nothing is running"
			if up {
				if err := at.end(cmd.Context()); err != nil {
					return err
				}
				message = "the stack is down"
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), message)
			return err
		},
	}
}
