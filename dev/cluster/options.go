package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	defaultNodes = 4
	// podsPerNode is the pod capacity of a node.
	podsPerNode = 1100
)

// Options contains the options of a cluster. Only Dir is required.
type Options struct {
	// Dir is the directory of data, certificates and logs. If Dir does not exist, Start creates the directory.
	Dir string
	// Root is the directory of the repository, which contains the defaults of Bin and Manifests. By default,
	// Root is the nearest directory at or above the working directory that contains a go.mod.
	Root string
	// Bin is the directory of the programs, Root/bin by default.
	Bin string
	// Manifests contains the kustomize directories that are applied at the start. The default is config/crd
	// and config/rbac of Root.
	Manifests []string
	// Nodes is the number of simulated nodes, 4 by default.
	Nodes int
	// WithoutNodes disables the simulated nodes.
	WithoutNodes bool
	// Hosts contains additional names of the API server in the certificate.
	Hosts []string
	// WebhooksAtPods makes the API server call webhooks at the addresses of their pods. WebhooksAtPods is
	// needed if no proxy routes Services.
	WebhooksAtPods bool
	// APIServerPort is the port of the API server on every interface, for clients on other
	// machines. By default, the API server listens on a free port of 127.0.0.1.
	APIServerPort int
	// Temporal is DevServer or TemporalCluster. The default is the value of the environment variable
	// TemporalVariable. If the variable is not set, the default is DevServer.
	Temporal TemporalServer
	// WithoutTemporal disables the start of Temporal.
	WithoutTemporal bool
	// TemporalAddress is the address of the Temporal of another cluster. TemporalAddress requires
	// WithoutTemporal.
	TemporalAddress string
	// TemporalReady is called when Temporal is ready, while other processes may still be starting.
	// TemporalReady may be nil.
	TemporalReady func(*Cluster)
}

func (o Options) complete() (Options, error) {
	if o.Dir == "" {
		return o, errors.New("cluster options: Dir is required")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return o, fmt.Errorf("cluster options: Dir: %w", err)
	}
	o.Dir = dir
	if o.Root == "" {
		if o.Root, err = findRoot(); err != nil {
			return o, err
		}
	}
	o.Bin = cmp.Or(o.Bin, filepath.Join(o.Root, "bin"))
	if o.Manifests == nil {
		o.Manifests = []string{filepath.Join(o.Root, "config/crd"), filepath.Join(o.Root, "config/rbac")}
	}
	o.Nodes = cmp.Or(o.Nodes, defaultNodes)
	o.Temporal = cmp.Or(o.Temporal, TemporalServer(os.Getenv(TemporalVariable)), DevServer)
	return o, o.check()
}

// check returns an error if programs or manifests are missing, or if the kind of Temporal is unknown.
func (o Options) check() error {
	programs := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}
	if !o.WithoutNodes {
		programs = append(programs, "kwok")
	}
	switch {
	case o.WithoutTemporal:
	case o.Temporal == DevServer:
		programs = append(programs, "temporal")
	case o.Temporal == TemporalCluster:
		programs = append(programs, "temporal-server", "temporal-sql-tool", "outrigger")
	default:
		return fmt.Errorf("cluster options: Temporal: %q is neither %s nor %s", o.Temporal, DevServer, TemporalCluster)
	}
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(o.Bin, program)); err != nil {
			return fmt.Errorf("program %s is missing (run tools/build.sh %s): %w", program, program, err)
		}
	}
	for _, folder := range o.Manifests {
		if _, err := os.Stat(folder); err != nil {
			return fmt.Errorf("manifests are missing: %w", err)
		}
	}
	return nil
}

func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("find the repository: no go.mod at or above %s; set Root: %w", dir, fs.ErrNotExist)
		}
	}
}

func (c *Cluster) binary(name string) string { return filepath.Join(c.options.Bin, name) }
