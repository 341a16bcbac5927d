// Command controlplane is the Kubernetes control plane of docker-compose.yaml. controlplane runs etcd, the
// API server, the controllers and simulated nodes in one container.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/outrigger/outrigger/dev/cluster"
)

// options contains paths in the container, and addresses in the network of the container.
type options struct {
	// root is the directory that contains bin, config/crd and config/rbac. dir is the directory of
	// data, certificates and logs. kubeconfigs is the directory of the kubeconfigs of the roles.
	root, dir, kubeconfigs string
	// host and port are the address of the API server.
	host string
	port int
	// webhook is the URL at which the API server calls the webhook.
	webhook string
}

func main() {
	o := options{
		root: "/", dir: "/var/lib/controlplane", kubeconfigs: "/kubeconfigs",
		host: "controlplane", port: 6443, webhook: "https://webhook:9443",
	}
	if err := run(signals.SetupSignalHandler(), o); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// run runs a control plane with the existing state in dir, until ctx or one of the processes ends. If ctx ends,
// the result is nil.
func run(ctx context.Context, o options) error {
	// The health check uses this file, which the last step of the start writes. A healthy container therefore has
	// the kubeconfigs, the CRD and the webhook configurations.
	if err := os.RemoveAll(o.kubeconfig(cluster.Webhook)); err != nil {
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: o.dir, Root: o.root,
		Hosts: []string{o.host}, APIServerPort: o.port, WithoutTemporal: true,
	})
	if err != nil {
		return err
	}
	defer c.Shutdown()
	if err := c.InstallWebhooks(ctx, o.webhook); err != nil {
		return err
	}
	if err := o.export(c); err != nil {
		return err
	}
	fmt.Println("the control plane is ready; logs are in", c.LogDir())
	select {
	case <-ctx.Done():
		return nil
	case exit := <-c.Exited():
		return errors.Join(fmt.Errorf("%s ended by itself; last lines of its log:\n%s", exit.Name, exit.LogTail), exit.Err)
	}
}

// kubeconfig returns the path of the kubeconfig of a role.
func (o options) kubeconfig(role string) string { return filepath.Join(o.kubeconfigs, role) }

// export writes the kubeconfigs of the roles for use in other containers, the kubeconfig of the webhook last.
func (o options) export(c *cluster.Cluster) error {
	server := fmt.Sprintf("https://%s:%d", o.host, o.port)
	for _, role := range []string{cluster.Operator, cluster.Worker, cluster.Webhook} {
		config, err := clientcmd.LoadFromFile(c.RoleKubeconfig(role))
		if err != nil {
			return fmt.Errorf("read the kubeconfig of the %s: %w", role, err)
		}
		for _, each := range config.Clusters {
			each.Server = server
		}
		if err := clientcmd.WriteToFile(*config, o.kubeconfig(role)); err != nil {
			return fmt.Errorf("write the kubeconfig of the %s: %w", role, err)
		}
	}
	return nil
}
