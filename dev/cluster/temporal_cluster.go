package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// These are the names of the processes of a Temporal cluster.
const (
	Postgres          = "postgres"
	TemporalFrontend  = "temporal-frontend"
	TemporalHistory1  = "temporal-history-1"
	TemporalHistory2  = "temporal-history-2"
	TemporalMatching  = "temporal-matching"
	TemporalSysWorker = "temporal-worker"
)

//go:embed temporal-server.yaml
var temporalServerConfig []byte

// temporalHost is one process of a Temporal cluster.
type temporalHost struct {
	name    string
	service string
	// health is the name of the service in the gRPC health check, or empty if the host has no health check.
	health string
}

func temporalHosts() []temporalHost {
	const services = "temporal.api.workflowservice.v1."
	return []temporalHost{
		{name: TemporalFrontend, service: "frontend", health: services + "WorkflowService"},
		{name: TemporalHistory1, service: "history", health: services + "HistoryService"},
		{name: TemporalHistory2, service: "history", health: services + "HistoryService"},
		{name: TemporalMatching, service: "matching", health: services + "MatchingService"},
		{name: TemporalSysWorker, service: "worker"},
	}
}

// TemporalProcesses returns the names of the processes of Temporal, without the database.
func (c *Cluster) TemporalProcesses() []string {
	if c.options.Temporal == DevServer {
		return []string{Temporal}
	}
	var names []string
	for _, host := range temporalHosts() {
		names = append(names, host.name)
	}
	return names
}

// startTemporalCluster starts PostgreSQL, and then the hosts. startTemporalCluster creates the namespace with
// the same setup command as a user.
func (c *Cluster) startTemporalCluster(ctx context.Context) error {
	if err := c.startPostgres(ctx); err != nil {
		return err
	}
	if err := c.writeTemporalConfig(); err != nil {
		return err
	}
	specs := map[string]process.Spec{}
	for _, host := range temporalHosts() {
		specs[host.name] = c.temporalHostSpec(host)
	}
	if err := c.eachHost(func(name string) error { return c.Start(ctx, specs[name]) }); err != nil {
		return err
	}
	return c.setupNamespace(ctx)
}

// eachHost starts the hosts. If the database is empty, one host starts first, because two hosts cannot write
// the metadata of the cluster at the same time. If the database is not empty, all hosts start at the same time,
// because a single host searches for the previous hosts for half a minute.
func (c *Cluster) eachHost(start func(name string) error) error {
	names := c.TemporalProcesses()
	if c.emptyDatabase {
		if err := start(names[0]); err != nil {
			return err
		}
		c.emptyDatabase = false
		names = names[1:]
	}
	return each(names, start)
}

// createDatabases creates the databases. If drop is true, createDatabases drops the existing databases first.
func (c *Cluster) createDatabases(ctx context.Context, drop bool) error {
	for database, schema := range map[string]string{"temporal": "temporal", "temporal_visibility": "visibility"} {
		steps := [][]string{
			{"drop-database", "--force"},
			{"create-database"}, {"setup-schema", "-v", "0.0"}, {"update-schema", "--schema-name", "postgresql/v12/" + schema},
		}
		if !drop {
			steps = steps[1:]
		}
		for _, args := range steps {
			if err := c.sqlTool(ctx, database, args...); err != nil {
				return err
			}
		}
	}
	c.emptyDatabase = true
	return nil
}

func (c *Cluster) sqlTool(ctx context.Context, database string, args ...string) error {
	_, err := output(exec.CommandContext(ctx, c.binary("temporal-sql-tool"), append([]string{
		"--plugin", "postgres12", "--ep", "127.0.0.1", "-p", fmt.Sprint(c.ports.of(Postgres)), "-u", postgresUser, "--db", database,
	}, args...)...))
	return err
}

// setupNamespace runs the setup command of docs/temporal.md. The command is idempotent.
func (c *Cluster) setupNamespace(ctx context.Context) error {
	_, err := output(exec.CommandContext(ctx, c.binary("outrigger"), "temporal", "setup",
		"--temporal-address="+c.TemporalAddress, "--temporal-namespace="+TemporalNamespace, "--retention=168h"))
	return err
}

// writeTemporalConfig writes the configuration, which all hosts share.
func (c *Cluster) writeTemporalConfig() error {
	dir := filepath.Join(c.options.Dir, temporalConfigDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create the directory of Temporal's configuration: %w", err)
	}
	var dynamic []byte
	for key, value := range dynamicConfig() {
		dynamic = fmt.Appendf(dynamic, "%s:\n- value: %d\n", key, value)
	}
	for file, data := range map[string][]byte{"server.yaml": temporalServerConfig, "dynamic.yaml": dynamic} {
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o644); err != nil {
			return fmt.Errorf("write Temporal's configuration: %w", err)
		}
	}
	return nil
}

func (c *Cluster) temporalHostSpec(host temporalHost) process.Spec {
	return process.Spec{
		Name: host.name, Path: c.binary("temporal-server"),
		Args: []string{"--config=" + temporalConfigDir, "--env=server", "--allow-no-auth", "start", "--service=" + host.service},
		Env: append(serverEnvironment(), "TEMPORAL_ROOT="+c.options.Dir,
			"POSTGRES="+c.at(Postgres), "FRONTEND="+c.TemporalAddress, "METRICS="+c.at(host.name+"/metrics"),
			fmt.Sprintf("GRPC_PORT=%d", c.ports.of(host.name)), fmt.Sprintf("MEMBERSHIP_PORT=%d", c.ports.of(host.name+"/membership"))),
		Ready: func(ctx context.Context) error { return c.hostReady(ctx, host) },
	}
}

func (c *Cluster) hostReady(ctx context.Context, host temporalHost) error {
	if host.health == "" {
		return nil
	}
	connection, err := grpc.NewClient(c.at(host.name), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	answer, err := grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: host.health})
	if err != nil {
		return err
	}
	if answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s is %s", host.name, answer.Status)
	}
	return nil
}

// named returns the processes that name selects. The name temporal selects all processes of Temporal.
func (c *Cluster) named(name string) []string {
	if name == Temporal && !c.attached {
		return c.TemporalProcesses()
	}
	return []string{name}
}

// Stop stops processes like Group.Stop. The name temporal selects all processes of Temporal.
func (c *Cluster) Stop(name string) error { return each(c.named(name), c.Group.Stop) }

// Kill kills processes like Group.Kill. The name temporal selects all processes of Temporal.
func (c *Cluster) Kill(name string) error { return each(c.named(name), c.Group.Kill) }

// StartAgain starts a stopped process again. The name temporal selects all processes of Temporal, and also sets
// up the namespace of a Temporal cluster.
func (c *Cluster) StartAgain(ctx context.Context, name string) error {
	if name != Temporal || c.attached || c.options.Temporal == DevServer {
		return c.Group.StartAgain(ctx, name)
	}
	if err := c.eachHost(func(name string) error { return c.Group.StartAgain(ctx, name) }); err != nil {
		return err
	}
	return c.setupNamespace(ctx)
}

// each calls act for all names in parallel.
func each(names []string, act func(string) error) error {
	var all errgroup.Group
	for _, name := range names {
		all.Go(func() error { return act(name) })
	}
	return all.Wait()
}
