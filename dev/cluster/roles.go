package cluster

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// The kinds of role.
const (
	Operator = "operator"
	Worker   = "worker"
	Webhook  = "webhook"
)

// Role is one running `outrigger <role>` and where it is reached.
type Role struct {
	// Name is the process name: operator, webhook, worker-1, ...
	Name string
	// Metrics and Health are URLs.
	Metrics string
	Health  string
	// WebhookURL is what the API server calls; empty for the other roles.
	WebhookURL string
}

// AttachOptions say how to run roles against an existing cluster.
type AttachOptions struct {
	// Dir holds the logs.
	Dir string
	// Bin holds outrigger and kubectl.
	Bin        string
	Kubeconfig string
	// TemporalAddress is empty to use the TEMPORAL_* variables and profiles.
	TemporalAddress string
	TemporalUI      string
	// WebhookURL is how that cluster's API server reaches this machine.
	WebhookURL string
}

// Attach prepares to run roles, with the rights of the given kubeconfig, against an existing
// cluster and Temporal. It starts nothing.
func Attach(options AttachOptions) (*Cluster, error) {
	c, err := newCluster(Options{Dir: options.Dir, Bin: options.Bin})
	if err != nil {
		return nil, err
	}
	c.Kubeconfig = options.Kubeconfig
	c.TemporalAddress, c.TemporalUI = options.TemporalAddress, options.TemporalUI
	c.webhookURL = options.WebhookURL
	c.attached = true
	return c, c.connect()
}

// IsRole reports whether name is that of a role: operator, webhook, worker or worker-<n>.
func IsRole(name string) bool {
	return slices.Contains([]string{Operator, Worker, Webhook}, kindOf(name))
}

// kindOf turns worker-2 into worker.
func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, "-")
	return kind
}

// RoleKubeconfig is the path of the kubeconfig that a role (worker, worker-2, ...) runs with.
func (c *Cluster) RoleKubeconfig(name string) string {
	if c.attached {
		return c.Kubeconfig
	}
	return c.kubeconfigFile(kindOf(name))
}

// Roles returns the roles in the order of their first start.
func (c *Cluster) Roles() []Role {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.roles)
}

// StartRole runs `outrigger <role>` as process name on free ports and waits until
// /readyz answers 200. Args come last, so that they override the usual flags.
func (c *Cluster) StartRole(ctx context.Context, name string, args ...string) (Role, error) {
	if !IsRole(name) {
		return Role{}, fmt.Errorf("role %q is none of operator, webhook, worker-<n>", name)
	}
	var metrics, health int
	if err := c.ports.takeEach(&metrics, &health); err != nil {
		return Role{}, err
	}
	role := Role{Name: name, Metrics: "http://" + loopback(metrics) + "/metrics", Health: "http://" + loopback(health)}
	flags := []string{
		kindOf(name),
		"--kubeconfig=" + c.RoleKubeconfig(name), "--namespace=" + SystemNamespace,
		"--metrics-bind-address=" + loopback(metrics), "--health-probe-bind-address=" + loopback(health),
	}
	own, err := c.roleFlags(&role)
	if err != nil {
		return Role{}, err
	}
	// A caller that passes its own URL installs the webhooks itself.
	if role.WebhookURL != "" && !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--url=") }) {
		if err := c.InstallWebhooks(ctx, role.WebhookURL); err != nil {
			return Role{}, err
		}
	}
	if err := c.addRole(role); err != nil {
		return Role{}, err
	}
	return role, c.Start(ctx, process.Spec{
		Name: name, Path: c.binary("outrigger"),
		Args:  slices.Concat(flags, own, args),
		Env:   c.roleEnv(name),
		Ready: answers(role.Health + "/readyz"),
	})
}

// addRole registers a role before its first start, so that a failed role can be started again
// by name.
func (c *Cluster) addRole(role Role) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.roles, func(r Role) bool { return r.Name == role.Name }) {
		return fmt.Errorf("role %s exists already; start it again by name", role.Name)
	}
	c.roles = append(c.roles, role)
	return nil
}

// roleEnv gives each worker its own identity in Temporal. In a cluster of our own the name of
// a process is unique, like the uid of a pod. Our own Temporal uses neither TLS nor keys, so
// the user's configuration of another Temporal is switched off.
func (c *Cluster) roleEnv(name string) []string {
	env := []string{"POD_NAME=" + name}
	if !c.attached {
		env = append(env, "POD_UID="+name, "TEMPORAL_CONFIG_FILE="+os.DevNull, "TEMPORAL_PROFILE=", "TEMPORAL_TLS=false", "TEMPORAL_API_KEY=", "TEMPORAL_API_KEY_FILE=")
	}
	return env
}

// roleFlags are the flags that not every role has.
func (c *Cluster) roleFlags(role *Role) ([]string, error) {
	var temporal []string
	if c.TemporalAddress != "" {
		temporal = append(temporal, "--temporal-address="+c.TemporalAddress)
	}
	if !c.attached {
		temporal = append(temporal, "--temporal-namespace="+TemporalNamespace)
	}
	switch kindOf(role.Name) {
	case Operator:
		// There is one operator, which after kill -9 must not wait for its own Lease.
		return append(temporal, "--temporal-ui-url="+c.TemporalUI, "--leader-elect=false"), nil
	case Worker:
		return temporal, nil
	}
	role.WebhookURL = c.webhookURL
	if role.WebhookURL == "" {
		port, err := c.ports.take()
		if err != nil {
			return nil, err
		}
		role.WebhookURL = fmt.Sprintf("https://localhost:%d", port)
	}
	parsed, err := url.Parse(role.WebhookURL)
	if err != nil {
		return nil, fmt.Errorf("webhook URL: %w", err)
	}
	// Nothing routes by readiness here.
	return []string{"--url=" + role.WebhookURL, "--port=" + parsed.Port(), "--shutdown-delay-duration=0s"}, nil
}
