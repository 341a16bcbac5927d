// Package manifests tests the manifests that users apply to a cluster.
package manifests

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger/outrigger/dev/cluster"
)

// stream creates pods in a dry run, one after the other in each client, until a pod is rejected.
type stream struct {
	cancel  context.CancelFunc
	all     *errgroup.Group
	ended   <-chan struct{}
	created atomic.Int64
	// injected is the number of pods with a sidecar. late is the number of pods without a sidecar
	// that were created after the first pod with a sidecar.
	injected, late atomic.Int64
}

func newStream(t *testing.T, client kubernetes.Interface, clients int) *stream {
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{cancel: cancel}
	s.all, ctx = errgroup.WithContext(ctx)
	s.ended = ctx.Done()
	for range clients {
		s.all.Go(func() error {
			// The ticker limits each client to 50 pods per second, so that the API server, the webhook
			// and other tests get enough CPU time.
			rate := time.NewTicker(20 * time.Millisecond)
			defer rate.Stop()
			for ; ctx.Err() == nil; <-rate.C {
				injectedBefore := s.injected.Load() > 0
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "stream", Labels: map[string]string{"app": "stream"}}}
				pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
				made, err := client.CoreV1().Pods("default").Create(context.WithoutCancel(ctx), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err != nil {
					return fmt.Errorf("after %d pods: %w", s.created.Load(), err)
				}
				s.created.Add(1)
				if len(made.Spec.Containers) > 1 {
					s.injected.Add(1)
				} else if injectedBefore {
					s.late.Add(1)
				}
			}
			return nil
		})
	}
	t.Cleanup(cancel)
	return s
}

// await polls done until the stream ends. If pods are rejected, done may never return true.
func (s *stream) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%d pods were created, %d with a sidecar, %d without one", s.created.Load(), s.injected.Load(), s.late.Load())
		}
	}()
	await(t, what, func() (bool, error) {
		select {
		case <-s.ended:
			return false, errors.Join(errors.New("the stream of pods ended"), s.all.Wait())
		default:
			return done(), nil
		}
	})
}

// await polls done. The timeout is long, so that only a program that hangs reaches the timeout.
func await(t *testing.T, what string, done func() (bool, error)) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 10*time.Minute, true, func(context.Context) (bool, error) { return done() })
	require.NoError(t, err, what)
}

// end ends the stream, and returns the error of the first rejected pod.
func (s *stream) end() error {
	s.cancel()
	return s.all.Wait()
}

func clientOf(t *testing.T, c *cluster.Cluster) kubernetes.Interface {
	config, err := c.RESTConfig()
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func kubectl(t *testing.T, c *cluster.Cluster, stdin string, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t, c, stdin, args...)
	require.NoError(t, err, out)
	return out
}

func tryKubectl(t *testing.T, c *cluster.Cluster, stdin string, args ...string) (string, error) {
	command := exec.CommandContext(t.Context(), "../../bin/kubectl", append([]string{"--kubeconfig=" + c.Kubeconfig}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.CombinedOutput()
	return string(out), err
}

// The webhook configurations are installed before a webhook runs, and must not reject pods.
func TestDefaultInstallationRejectsNoPodOfOthers(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), Nodes: 2, WithoutTemporal: true})
	require.NoError(t, err)
	t.Cleanup(c.Shutdown)
	pods := newStream(t, clientOf(t, c), 2)
	kubectl(t, c, "", "apply", "-k", "../../config/default")
	for _, name := range []string{"operator", "worker", "webhook"} {
		kubectl(t, c, "", "rollout", "status", "deployment/outrigger-"+name, "-n", "kruise-system", "--timeout=60s")
	}
	kubectl(t, c, "", "rollout", "restart", "deployment", "-n", "kruise-system")
	kubectl(t, c, "", "rollout", "status", "deployment/outrigger-webhook", "-n", "kruise-system", "--timeout=60s")
	kubectl(t, c, "", "apply", "-k", "../../config/default")
	require.NoError(t, pods.end())
	t.Logf("%d pods were created, 0 rejected", pods.created.Load())
}
