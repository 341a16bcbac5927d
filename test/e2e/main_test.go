//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/test/realnode"
)

// stack is the cluster that all tests of this package share.
var stack struct {
	*cluster.Cluster
	node *realnode.Node
	kube client.Client
}

const (
	bin      = "../../bin"
	programs = bin + "/node"
)

func TestMain(m *testing.M) {
	code, err := realnode.Contain(func(state string) int { return run(m, state) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
	os.Exit(code)
}

func run(m *testing.M, state string) int {
	ctrllog.SetLogger(logr.Discard())
	if err := start(state); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer stack.Shutdown()
	return m.Run()
}

// start runs the control plane, the node and the roles. If start fails, the process ends, and the kernel
// kills all started processes.
func start(state string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// The cluster writes its logs to the state directory, because Contain keeps the logs if a test fails.
	if stack.Cluster, err = cluster.Start(ctx, cluster.Options{Dir: state, WithoutNodes: true}); err != nil {
		return err
	}
	folder, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	if stack.node, err = realnode.Start(ctx, stack.Cluster, folder, state, images()...); err != nil {
		return err
	}
	for _, role := range []string{cluster.Operator, cluster.Webhook, "worker-1"} {
		if _, err := stack.StartRole(ctx, role); err != nil {
			return err
		}
	}
	config, err := stack.RESTConfig()
	if err != nil {
		return err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	if err := batchv1.AddToScheme(scheme); err != nil {
		return err
	}
	stack.kube, err = client.New(config, client.Options{Scheme: scheme})
	return err
}
