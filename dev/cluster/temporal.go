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

// TemporalNamespace is the namespace of all rollouts; the dev server creates it by itself.
const TemporalNamespace = "default"

// TemporalServer is a way to run Temporal.
type TemporalServer string

const (
	// DevServer is one process on SQLite, with the web UI.
	DevServer TemporalServer = "dev-server"
	// TemporalCluster is Temporal's own server on PostgreSQL: a process for each
	// service, and two for history.
	TemporalCluster TemporalServer = "cluster"
	// TemporalVariable is the environment variable that names the server if Options do not.
	TemporalVariable = "OUTRIGGER_TEMPORAL"
)

type dynamicValue struct {
	key   string
	value int
}

// dynamicConfig is the same for both servers.
func dynamicConfig() []dynamicValue {
	return []dynamicValue{
		// The defaults poll so rarely that each dispatch waits about 50 ms.
		{"history.transferProcessorMaxPollRPS", 2000},
		{"history.timerProcessorMaxPollRPS", 2000},
		{"matching.numTaskqueueReadPartitions", 1},
		{"matching.numTaskqueueWritePartitions", 1},
	}
}

func (c *Cluster) startTemporal(ctx context.Context) error {
	start := func(ctx context.Context) error { return c.Start(ctx, c.devServerSpec()) }
	if c.options.Temporal == TemporalCluster {
		start = c.startTemporalCluster
	}
	if err := start(ctx); err != nil {
		return err
	}
	if c.options.TemporalReady != nil {
		c.options.TemporalReady(c)
	}
	return nil
}

func (c *Cluster) devServerSpec() process.Spec {
	spec := process.Spec{
		Name: Temporal, Path: c.binary("temporal"),
		Args: []string{
			"server", "start-dev",
			"--db-filename", filepath.Join(c.options.Dir, temporalDB),
			"--ip", "127.0.0.1", "--port", fmt.Sprint(c.at.temporal), "--ui-port", fmt.Sprint(c.at.temporalUI),
			"--metrics-port", fmt.Sprint(c.at.temporalMetrics),
			"--log-level", "warn",
			"--search-attribute", "SidecarSet=Keyword",
			"--search-attribute", "SidecarSetGeneration=Int",
			"--search-attribute", "RolloutPhase=Keyword",
		},
		Ready: func(ctx context.Context) error { return describeNamespace(ctx, c.TemporalAddress) },
	}
	for _, one := range dynamicConfig() {
		spec.Args = append(spec.Args, "--dynamic-config-value", fmt.Sprintf("%s=%d", one.key, one.value))
	}
	return spec
}

// StartDevServerAs runs the dev server, which must be stopped, as process name and with
// further arguments, on its usual ports and database.
func (c *Cluster) StartDevServerAs(ctx context.Context, name string, args ...string) error {
	spec := c.devServerSpec()
	spec.Name = name
	spec.Args = append(spec.Args, args...)
	return c.Start(ctx, spec)
}

// ForgetWorkflows removes Temporal's data, as if its database were lost. Temporal must not
// run.
func (c *Cluster) ForgetWorkflows(ctx context.Context) error {
	if c.options.Temporal == TemporalCluster {
		if err := c.dropDatabases(ctx); err != nil {
			return err
		}
		return c.createDatabases(ctx)
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
