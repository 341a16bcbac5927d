package main

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// start runs a control plane and waits until the control plane is ready. The channel receives the result of
// run.
func start(t *testing.T) (options, <-chan error, context.CancelFunc) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	o := options{root: root, dir: t.TempDir(), kubeconfigs: t.TempDir(), host: "localhost", port: freePort(t), webhook: "https://webhook:9443"}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, o) }()
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
		select {
		case err := <-done:
			return false, err
		default:
		}
		// This command is the health check of the container.
		check := exec.CommandContext(ctx, filepath.Join(root, "bin", "kubectl"), "--kubeconfig="+o.kubeconfig("webhook"), "get", "--raw", "/readyz")
		return check.Run() == nil, nil
	})
	require.NoError(t, err)
	return o, done, cancel
}

func freePort(t *testing.T) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().(*net.TCPAddr).Port
}

func TestRolesReachTheAPIServerByItsName(t *testing.T) {
	o, done, cancel := start(t)
	defer cancel()
	for _, role := range []string{"operator", "worker", "webhook"} {
		config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig(role))
		require.NoError(t, err)
		assert.Equal(t, "https://localhost:"+strconv.Itoa(o.port), config.Host)
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		_, err = client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		assert.NoError(t, err, role)
	}
	cancel()
	require.NoError(t, <-done, "an end that was asked for is no failure")
}
