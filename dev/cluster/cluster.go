package cluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	sdk "go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// SystemNamespace is the namespace of revisions, Leases and configuration.
const SystemNamespace = "kruise-system"

// These are the files and directories in Options.Dir.
const (
	etcdDir        = "etcd"
	certsDir       = "certs"
	logsDir        = "logs"
	temporalDB     = "temporal.db"
	stagesFile     = "stages.yaml"
	kubeconfigFile = "kubeconfig"

	postgresDir       = "postgres"
	temporalConfigDir = "temporal-config"
)

//go:embed stages.yaml
var stages []byte

// Cluster is a running cluster, or a set of roles that run against an existing cluster (see Attach). The
// processes of a Cluster can be stopped, killed and started again by name.
type Cluster struct {
	*process.Group

	// Kubeconfig is the path of the kubeconfig of the admin.
	Kubeconfig string
	// TemporalAddress is the host:port of the frontend. If there is no frontend, TemporalAddress is empty.
	TemporalAddress string
	// TemporalUI is the URL of the web UI. If there is no web UI, TemporalUI is empty.
	TemporalUI string
	// TemporalMetrics is the URL of the metrics of the frontend. If there is no frontend, TemporalMetrics is
	// empty.
	TemporalMetrics string

	// Kube is a client with the permissions of the admin. Kube reads from the API server, not from a cache.
	Kube client.Client
	// Temporal is a client of the Temporal of the cluster.
	Temporal sdk.Client

	// webhookURL is the URL of the webhook. If webhookURL is empty, the webhook uses a free port.
	webhookURL string
	// attached is true if the control plane is not part of this Cluster.
	attached bool

	options Options
	ports   *ports
	// token is the token of the admin.
	token string
	// emptyDatabase is true until the first host of a Temporal cluster has initialized the database.
	emptyDatabase bool
}

// Start runs a cluster, and returns when the nodes are Ready and the manifests are applied. Existing state in
// options.Dir is reused (see RemoveState). ctx limits only the start. Shutdown stops the cluster.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	c, err := newCluster(options)
	if err != nil {
		return nil, err
	}
	if err = c.prepare(); err == nil {
		err = c.startAll(ctx)
	}
	if err != nil {
		c.Shutdown()
		return nil, err
	}
	return c, nil
}

// Shutdown stops all processes in the reverse order of their first start, and returns when all processes are
// gone. A second call does nothing.
func (c *Cluster) Shutdown() {
	if c.Temporal != nil {
		c.Temporal.Close()
	}
	c.Group.Shutdown()
	c.ports.release()
}

// RESTConfig returns a client configuration of the admin, without a rate limit.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", c.Kubeconfig, err)
	}
	config.QPS = -1
	return config, nil
}

// RemoveState deletes the state of an earlier cluster in dir. RemoveState deletes no other files.
func RemoveState(dir string) error {
	for _, name := range []string{
		etcdDir, certsDir, logsDir, temporalDB, temporalDB + "-shm", temporalDB + "-wal", stagesFile, kubeconfigFile,
		postgresDir, temporalConfigDir,
	} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("remove the state of an earlier cluster: %w", err)
		}
	}
	return nil
}

func newCluster(options Options) (*Cluster, error) {
	block, err := claimPorts()
	if err != nil {
		return nil, err
	}
	return &Cluster{
		Group:      process.NewGroup(filepath.Join(options.Dir, logsDir)),
		Kubeconfig: filepath.Join(options.Dir, kubeconfigFile),
		options:    options,
		ports:      block,
	}, nil
}

// prepare determines addresses and writes certificates and files.
func (c *Cluster) prepare() error {
	c.ports.uses[APIServer] = c.options.APIServerPort
	c.addressTemporal()
	if err := os.MkdirAll(c.options.Dir, 0o755); err != nil {
		return fmt.Errorf("create the state directory: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.options.Dir, stagesFile), stages, 0o644); err != nil {
		return fmt.Errorf("write the KWOK stages: %w", err)
	}
	if err := c.writeIdentities(); err != nil {
		return err
	}
	return c.connect()
}

func (c *Cluster) addressTemporal() {
	if c.options.WithoutTemporal {
		c.TemporalAddress = c.options.TemporalAddress
		return
	}
	c.TemporalAddress = c.at(TemporalFrontend)
	c.TemporalMetrics = "http://" + c.at(TemporalFrontend+"/metrics") + "/metrics"
	if c.options.Temporal == DevServer {
		c.TemporalUI = "http://" + c.at("temporal-ui")
	}
}

// startAll starts independent processes in parallel.
func (c *Cluster) startAll(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	if !c.options.WithoutTemporal {
		all.Go(func() error { return c.startTemporal(ctx) })
	}
	all.Go(func() error {
		if err := c.Start(ctx, c.etcdSpec()); err != nil {
			return err
		}
		if err := c.Start(ctx, c.apiServerSpec()); err != nil {
			return err
		}
		return c.startClients(ctx)
	})
	return all.Wait()
}

func (c *Cluster) startClients(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	if !c.options.WithoutNodes {
		all.Go(func() error { return c.startKWOK(ctx) })
		all.Go(func() error { return createNodes(ctx, c.Kube, c.options.Nodes) })
	}
	all.Go(func() error { return c.Start(ctx, c.controllerManagerSpec()) })
	all.Go(func() error { return c.Start(ctx, c.schedulerSpec()) })
	all.Go(func() error { return c.install(ctx) })
	return all.Wait()
}

// startKWOK starts KWOK, and retries once if the process ends before the process is ready. KWOK 0.8.0 prepares
// the stages of nodes and pods concurrently, which may cause a panic.
func (c *Cluster) startKWOK(ctx context.Context) error {
	err := c.Start(ctx, c.kwokSpec())
	if errors.Is(err, process.ErrEnded) {
		return c.StartAgain(ctx, KWOK)
	}
	return err
}

// EtcdURL returns the URL of etcd. etcd accepts every client on this machine.
func (c *Cluster) EtcdURL() string { return "http://" + c.at(Etcd) }

// LogDir returns the directory of the log files. The log file of a process is <process>.log.
func (c *Cluster) LogDir() string { return filepath.Join(c.options.Dir, logsDir) }
