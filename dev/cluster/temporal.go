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

// TemporalNamespace is the namespace that the dev server creates by itself.
const TemporalNamespace = "default"

func (c *Cluster) temporalSpec() process.Spec {
	return process.Spec{
		Name: Temporal, Path: c.binary("temporal"),
		Args: []string{
			"server", "start-dev",
			"--db-filename", filepath.Join(c.options.Dir, temporalDB),
			"--ip", "127.0.0.1", "--port", fmt.Sprint(c.at.temporal), "--ui-port", fmt.Sprint(c.at.temporalUI),
			"--log-level", "warn",
			"--search-attribute", "SidecarSet=Keyword",
			"--search-attribute", "SidecarSetGeneration=Int",
			"--search-attribute", "RolloutPhase=Keyword",
			// The defaults poll so rarely that each dispatch waits about 50 ms.
			"--dynamic-config-value", "history.transferProcessorMaxPollRPS=2000",
			"--dynamic-config-value", "history.timerProcessorMaxPollRPS=2000",
			"--dynamic-config-value", "matching.numTaskqueueReadPartitions=1",
			"--dynamic-config-value", "matching.numTaskqueueWritePartitions=1",
		},
		Ready: func(ctx context.Context) error { return describeNamespace(ctx, c.TemporalAddress) },
	}
}

// ForgetWorkflows removes what Temporal knows, as if its database were lost. It
// must not run.
func (c *Cluster) ForgetWorkflows() error {
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
