package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/outrigger/outrigger/dev/cluster/process"
)

// These are the names of the processes of a cluster. A cluster without nodes has no KWOK, and a cluster with
// the option WithoutTemporal has no Temporal.
const (
	Etcd              = "etcd"
	APIServer         = "apiserver"
	ControllerManager = "controller-manager"
	Scheduler         = "scheduler"
	KWOK              = "kwok"
	Temporal          = "temporal"
)

// APIServerAddress is the address of the Service kubernetes, at which pods reach the API server. This address
// is the first address of the service range.
const APIServerAddress = "10.96.0.1"

// clientQPS is a rate limit of clients that is too high to have an effect.
const clientQPS = "5000"

// idleControllers returns the disabled controllers. The cluster has no objects for the controllers of clouds,
// storage and certificate requests. The pod garbage collector is disabled, because tests act as the kubelets of
// pods on nodes that do not exist.
func idleControllers() []string {
	return []string{
		"node-ipam-controller", "service-lb-controller", "node-route-controller", "cloud-node-lifecycle-controller",
		"persistentvolume-attach-detach-controller", "persistentvolume-expander-controller",
		"certificatesigningrequest-signing-controller", "certificatesigningrequest-approving-controller",
		"certificatesigningrequest-cleaner-controller", "podcertificaterequest-cleaner-controller",
		"kube-apiserver-serving-clustertrustbundle-publisher-controller", "horizontal-pod-autoscaler-controller",
		"bootstrap-signer-controller", "token-cleaner-controller", "selinux-warning-controller",
		"pod-garbage-collector-controller",
	}
}

// serverEnvironment makes the garbage collectors of the servers run less often, because CPU time is scarcer
// than memory. The servers use no proxy, because a proxy cannot reach the Services of the cluster.
func serverEnvironment() []string {
	return []string{"GOGC=400", "NO_PROXY=*"}
}

// server returns the Spec of a server that is ready when readyURL answers with status 200.
func (c *Cluster) server(name, program, readyURL string, args ...string) process.Spec {
	return process.Spec{Name: name, Path: c.binary(program), Args: args, Env: serverEnvironment(), Ready: answers(readyURL)}
}

func (c *Cluster) etcdSpec() process.Spec {
	client, peer := c.EtcdURL(), "http://"+c.at(Etcd+"/peer")
	return c.server(Etcd, "etcd", client+"/health",
		"--data-dir="+filepath.Join(c.options.Dir, etcdDir),
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer,
		"--unsafe-no-fsync", // The page cache survives SIGKILL, and no test crashes the machine.
		"--quota-backend-bytes=4294967296",
		"--log-level=warn",
	)
}

func (c *Cluster) apiServerSpec() process.Spec {
	listen := "127.0.0.1"
	if c.options.APIServerPort != 0 {
		listen = "0.0.0.0"
	}
	flags := []string{
		"--etcd-servers=" + c.EtcdURL(),
		"--bind-address=" + listen, fmt.Sprintf("--secure-port=%d", c.ports.of(APIServer)),
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", // Endpoints must not contain a loopback address.
		"--service-cluster-ip-range=10.96.0.0/16",
		"--kubelet-preferred-address-types=InternalIP", // Logs, exec and port-forward of a real node need this address type.
		"--tls-cert-file=" + c.certificate("apiserver.crt"), "--tls-private-key-file=" + c.certificate("apiserver.key"),
		"--token-auth-file=" + c.certificate(tokenFile),
		"--authorization-mode=RBAC", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.certificate("apiserver.key"),
		"--service-account-signing-key-file=" + c.certificate("apiserver.key"),
		"--enable-priority-and-fairness=false", "--max-requests-inflight=3000", "--max-mutating-requests-inflight=1000",
		"--profiling=false",
	}
	if c.options.WebhooksAtPods {
		flags = append(flags, "--enable-aggregator-routing=true")
	}
	return c.server(APIServer, "kube-apiserver", "https://"+c.at(APIServer)+"/readyz", flags...)
}

func (c *Cluster) controllerManagerSpec() process.Spec {
	return c.controllerSpec(ControllerManager,
		"--use-service-account-credentials",
		"--service-account-private-key-file="+c.certificate("apiserver.key"),
		"--root-ca-file="+c.certificate("apiserver.crt"),
		"--controllers=*,-"+strings.Join(idleControllers(), ",-"),
		"--node-monitor-grace-period=5m", // Pods must not be evicted while the machine is overloaded or KWOK is stopped.
		"--concurrent-deployment-syncs=10", "--concurrent-replicaset-syncs=20", "--concurrent-gc-syncs=10",
	)
}

func (c *Cluster) schedulerSpec() process.Spec { return c.controllerSpec(Scheduler) }

// controllerSpec returns the Spec of the controller manager or the scheduler.
func (c *Cluster) controllerSpec(name string, args ...string) process.Spec {
	return c.server(name, "kube-"+name, "https://"+c.at(name)+"/healthz", append(args,
		"--kubeconfig="+c.kubeconfigFile(name),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports.of(name)), "--cert-dir="+c.certificate(""),
		"--leader-elect=false",
		"--kube-api-qps="+clientQPS, "--kube-api-burst="+clientQPS,
	)...)
}

func (c *Cluster) kwokSpec() process.Spec {
	return c.server(KWOK, "kwok", "http://"+c.at(KWOK)+"/healthz",
		"--kubeconfig="+c.kubeconfigFile(KWOK),
		"--config="+filepath.Join(c.options.Dir, stagesFile),
		"--node-ip=127.0.0.1",
		"--server-address="+c.at(KWOK),
	)
}

// answers returns a probe that succeeds if a URL answers with status 200.
func answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := Get(ctx, url)
		return err
	}
}
