package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/dev/cluster"
)

// runOptions contains the options of the cluster, and additional flags of each role.
type runOptions struct {
	cluster.AttachOptions
	operator, worker, webhook string
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := command("run", "Run the three roles here against a cluster that exists; Ctrl-C stops them", func(cmd *cobra.Command, _ []string) error {
		if o.Kubeconfig == "" {
			return errors.New("which cluster? set --kubeconfig or KUBECONFIG")
		}
		return run(cmd.Context(), o, cmd.OutOrStdout())
	})
	flags := cmd.Flags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig of an administrator (KUBECONFIG)")
	flags.StringVar(&o.TemporalAddress, "temporal-address", "", "host:port of Temporal; without, TEMPORAL_* variables and profiles decide, as of the temporal CLI")
	flags.StringVar(&o.TemporalUI, "temporal-ui-url", os.Getenv("TEMPORAL_UI"), "web UI, for links (TEMPORAL_UI)")
	flags.StringVar(&o.WebhookURL, "webhook-url", cmp.Or(os.Getenv("WEBHOOK_URL"), "https://localhost:9443"),
		"how the API server reaches this machine; the port is listened on (WEBHOOK_URL)")
	flags.StringVar(&o.Dir, "dir", filepath.Join(".run", "roles"), "directory of the logs")
	flags.StringVar(&o.Bin, "bin", "bin", "directory of the programs")
	for name, value := range map[string]*string{cluster.Operator: &o.operator, cluster.Worker: &o.worker, cluster.Webhook: &o.webhook} {
		variable := envKey(name) + "_FLAGS"
		flags.StringVar(value, name+"-flags", os.Getenv(variable), "more flags for the "+name+", separated by spaces ("+variable+")")
	}
	return cmd
}

func run(ctx context.Context, o runOptions, out io.Writer) error {
	c, err := cluster.Attach(o.AttachOptions)
	if err != nil {
		return err
	}
	defer c.Shutdown()
	if err := c.Apply(ctx, filepath.Join("config", "crd")); err != nil {
		return err
	}
	if err := c.CreateSystemNamespace(ctx); err != nil {
		return err
	}
	for _, start := range [][]string{
		append([]string{cluster.Operator, "--leader-elect=true"}, strings.Fields(o.operator)...), // Another operator may run in that cluster.
		append([]string{cluster.Worker}, strings.Fields(o.worker)...),
		append([]string{cluster.Webhook}, strings.Fields(o.webhook)...),
	} {
		role, err := c.StartRole(ctx, start[0], start[1:]...)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s is ready; metrics %s\n", role.Name, role.Metrics); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(out, "logs are in %s; Ctrl-C stops the roles\n", c.LogDir()); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case exit := <-c.Exited():
		return errors.Join(fmt.Errorf("%s ended: %s", exit.Name, exit.LogTail), exit.Err)
	}
}
