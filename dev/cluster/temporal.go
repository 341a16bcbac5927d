package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.temporal.io/sdk/client"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// TemporalNamespace is the namespace of all rollouts. The dev server creates TemporalNamespace at the start.
const TemporalNamespace = "default"

// TemporalServer is a kind of Temporal server.
type TemporalServer string

const (
	// DevServer is one process with SQLite and the web UI.
	DevServer TemporalServer = "dev-server"
	// TemporalCluster is the Temporal server with PostgreSQL. The history service has two
	// processes, and each other service has one process.
	TemporalCluster TemporalServer = "cluster"
	// TemporalVariable is the environment variable that contains the kind of server if Options.Temporal is
	// empty.
	TemporalVariable = "OUTRIGGER_TEMPORAL"
)

// dynamicConfig returns the dynamic configuration of both kinds of servers.
func dynamicConfig() map[string]int {
	return map[string]int{
		// With the default rates, each dispatch of a task takes about 50 ms.
		"history.transferProcessorMaxPollRPS":  2000,
		"history.timerProcessorMaxPollRPS":     2000,
		"matching.numTaskqueueReadPartitions":  1,
		"matching.numTaskqueueWritePartitions": 1,
	}
}

func (c *Cluster) startTemporal(ctx context.Context) error {
	var err error
	if c.options.Temporal == TemporalCluster {
		err = c.startTemporalCluster(ctx)
	} else {
		err = c.Start(ctx, c.devServerSpec())
	}
	if err == nil && c.options.TemporalReady != nil {
		c.options.TemporalReady(c)
	}
	return err
}

func (c *Cluster) devServerSpec() process.Spec {
	spec := process.Spec{
		Name: Temporal, Path: c.binary("temporal"), Env: serverEnvironment(),
		Args: []string{
			"server", "start-dev",
			"--db-filename", filepath.Join(c.options.Dir, temporalDB),
			"--ip", "127.0.0.1", "--port", fmt.Sprint(c.ports.of(TemporalFrontend)), "--ui-port", fmt.Sprint(c.ports.of("temporal-ui")),
			"--metrics-port", fmt.Sprint(c.ports.of(TemporalFrontend + "/metrics")),
			"--log-level", "warn",
			"--search-attribute", "SidecarSet=Keyword",
			"--search-attribute", "SidecarSetGeneration=Int",
			"--search-attribute", "RolloutPhase=Keyword",
		},
		Ready: func(ctx context.Context) error { return describeNamespace(ctx, c.TemporalAddress) },
	}
	for key, value := range dynamicConfig() {
		spec.Args = append(spec.Args, "--dynamic-config-value", fmt.Sprintf("%s=%d", key, value))
	}
	return spec
}

// StartDevServerAs runs the dev server as the process name, with additional arguments. The usual dev server
// must be stopped, because the new process uses its ports and its database.
func (c *Cluster) StartDevServerAs(ctx context.Context, name string, args ...string) error {
	spec := c.devServerSpec()
	spec.Name = name
	spec.Args = append(spec.Args, args...)
	return c.Start(ctx, spec)
}

// ForgetWorkflows removes the data of Temporal, to simulate the loss of the database. Temporal must not run.
func (c *Cluster) ForgetWorkflows(ctx context.Context) error {
	if c.options.Temporal == TemporalCluster {
		return c.createDatabases(ctx, true)
	}
	for _, suffix := range []string{"", "-shm", "-wal"} {
		err := os.Remove(filepath.Join(c.options.Dir, temporalDB+suffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the database of Temporal: %w", err)
		}
	}
	return nil
}

func describeNamespace(ctx context.Context, address string) error {
	namespaces, err := client.NewNamespaceClient(client.Options{HostPort: address})
	if err != nil {
		return err
	}
	defer namespaces.Close()
	_, err = namespaces.Describe(ctx, TemporalNamespace)
	return err
}
