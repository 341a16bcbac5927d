package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// These are the kinds of roles.
const (
	Operator = "operator"
	Worker   = "worker"
	Webhook  = "webhook"
)

// Role is one process `outrigger <role>` and its URLs.
type Role struct {
	// Name is the name of the process, such as operator, webhook or worker-1.
	Name string
	// Metrics is the URL of the metrics. Health is the URL of the health server, without /readyz.
	Metrics string
	Health  string
	// WebhookURL is the URL at which the API server calls the webhook. For other roles, WebhookURL is empty.
	WebhookURL string
}

// AttachOptions contains the options of Attach.
type AttachOptions struct {
	// Dir is the directory of the logs.
	Dir string
	// Bin is the directory of outrigger and kubectl.
	Bin        string
	Kubeconfig string
	// TemporalAddress is the address of Temporal. If TemporalAddress is empty, the roles use the TEMPORAL_*
	// variables and profiles.
	TemporalAddress string
	TemporalUI      string
	// WebhookURL is the URL at which the API server of the existing cluster reaches the webhook on this
	// machine.
	WebhookURL string
}

// Attach returns a Cluster that runs roles against an existing cluster and an existing Temporal. The roles have
// the permissions of the kubeconfig. Attach starts no process.
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

// IsRole reports whether name is the name of a role, such as operator or worker-2.
func IsRole(name string) bool {
	return slices.Contains([]string{Operator, Worker, Webhook}, kindOf(name))
}

// kindOf returns the kind of a role. For example, the kind of worker-2 is worker.
func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, "-")
	return kind
}

// RoleKubeconfig returns the path of the kubeconfig of a role, such as worker or worker-2.
func (c *Cluster) RoleKubeconfig(name string) string {
	if c.attached {
		return c.Kubeconfig
	}
	return c.kubeconfigFile(kindOf(name))
}

// Roles returns the roles in the order of their first start.
func (c *Cluster) Roles() (roles []Role) {
	for _, status := range c.Processes() {
		if IsRole(status.Name) {
			roles = append(roles, c.role(status.Name))
		}
	}
	return roles
}

// role returns the URLs of a role, which do not change.
func (c *Cluster) role(name string) Role {
	role := Role{Name: name, Metrics: "http://" + c.at(name+"/metrics") + "/metrics", Health: "http://" + c.at(name+"/health")}
	if kindOf(name) == Webhook {
		role.WebhookURL = cmp.Or(c.webhookURL, fmt.Sprintf("https://localhost:%d", c.ports.of(name)))
	}
	return role
}

// StartRole runs `outrigger <role>` as the process name, on free ports, and waits until /readyz answers with
// status 200. args follow the default flags, and therefore override the default flags.
func (c *Cluster) StartRole(ctx context.Context, name string, args ...string) (Role, error) {
	if !IsRole(name) {
		return Role{}, fmt.Errorf("role %q is none of operator, webhook, worker-<n>", name)
	}
	role := c.role(name)
	flags := []string{
		kindOf(name),
		"--kubeconfig=" + c.RoleKubeconfig(name), "--namespace=" + SystemNamespace,
		"--metrics-bind-address=" + c.at(name+"/metrics"), "--health-probe-bind-address=" + c.at(name+"/health"),
	}
	own, err := c.roleFlags(role)
	if err != nil {
		return Role{}, err
	}
	// If the caller passes --url, the caller has to install the webhooks.
	if role.WebhookURL != "" && !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--url=") }) {
		if err := c.InstallWebhooks(ctx, role.WebhookURL); err != nil {
			return Role{}, err
		}
	}
	return role, c.Start(ctx, process.Spec{
		Name: name, Path: c.binary("outrigger"),
		Args:  slices.Concat(flags, own, args),
		Env:   c.roleEnv(name),
		Ready: answers(role.Health + "/readyz"),
	})
}

// StartUI runs `outrigger ui` on a free port with the permissions of the admin, and returns the URL of the UI.
func (c *Cluster) StartUI(ctx context.Context, args ...string) (string, error) {
	address := "http://" + c.at("ui")
	flags := append([]string{"ui", "--kubeconfig=" + c.Kubeconfig, "--bind-address=" + c.at("ui"), "--temporal-ui-url=" + c.TemporalUI}, c.temporalFlags()...)
	return address, c.Start(ctx, process.Spec{
		Name: "ui", Path: c.binary("outrigger"), Args: append(flags, args...), Env: c.roleEnv("ui"), Ready: answers(address),
	})
}

// roleEnv returns the environment of a role. Each worker has a different identity in Temporal. If the cluster
// is not attached, the name of the process replaces the UID of a pod.
func (c *Cluster) roleEnv(name string) []string {
	env := []string{"POD_NAME=" + name}
	if !c.attached {
		env = append(append(env, "POD_UID="+name), TemporalEnv()...)
	}
	return env
}

// TemporalEnv returns variables that disable the Temporal configuration of the user. The Temporal server of a cluster
// uses neither TLS nor keys.
func TemporalEnv() []string {
	return []string{"TEMPORAL_CONFIG_FILE=" + os.DevNull, "TEMPORAL_PROFILE=", "TEMPORAL_TLS=false", "TEMPORAL_API_KEY=", "TEMPORAL_API_KEY_FILE="}
}

// temporalFlags returns the flags of the connection to Temporal.
func (c *Cluster) temporalFlags() (flags []string) {
	if c.TemporalAddress != "" {
		flags = append(flags, "--temporal-address="+c.TemporalAddress)
	}
	if !c.attached {
		flags = append(flags, "--temporal-namespace="+TemporalNamespace)
	}
	return flags
}

// roleFlags returns the flags that differ between the roles.
func (c *Cluster) roleFlags(role Role) ([]string, error) {
	temporal := c.temporalFlags()
	switch kindOf(role.Name) {
	case Operator:
		// The cluster has only one operator. Without leader election, the operator need not wait until the
		// Lease of a killed operator expires.
		return append(temporal, "--temporal-ui-url="+c.TemporalUI, "--leader-elect=false"), nil
	case Worker:
		return temporal, nil
	}
	parsed, err := url.Parse(role.WebhookURL)
	if err != nil {
		return nil, fmt.Errorf("webhook URL: %w", err)
	}
	// No Service routes requests by readiness, so the webhook needs no delay before its shutdown.
	return []string{"--url=" + role.WebhookURL, "--port=" + parsed.Port(), "--shutdown-delay-duration=0s"}, nil
}
