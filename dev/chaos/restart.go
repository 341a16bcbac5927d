package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/chaos/observer"
	"github.com/outrigger/outrigger/dev/cluster"
)

const (
	// probeInterval is how often a pod is made to see whether it is admitted.
	probeInterval = 200 * time.Millisecond
	// undisturbed is for how long the rollout is watched before the restarts.
	undisturbed = 10 * time.Second
	// afterKill is how long the rollout is watched after one was killed.
	afterKill = 15 * time.Second
	// restartWindow makes the rollout last for longer than the restarts.
	restartWindow = "4"
)

func restartCommand() *cobra.Command {
	var pods int
	var kill bool
	var maxGap time.Duration
	cmd := &cobra.Command{
		Use: "restart", Short: "Restart every role in the middle of a rollout and measure what that costs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			roles := []string{"worker-1", "operator-1", "webhook-1", "worker-2", "operator-2", "webhook-2"}
			if kill {
				roles = []string{"worker-1", "worker-2"}
			}
			return rollingRestart(cmd.Context(), pods, roles, kill, maxGap, cmd.OutOrStdout())
		},
	}
	cmd.Flags().IntVar(&pods, "pods", 300, "on simulated nodes")
	cmd.Flags().BoolVar(&kill, "kill", false, "kill the workers instead, and leave the others alone")
	cmd.Flags().DurationVar(&maxGap, "max-gap", 2*time.Second, "fail when no pod is upgraded for as long during the restarts")
	return cmd
}

// rollingRestart has two of each role, restarts or kills some one after the other, and
// fails when a pod is refused meanwhile, or none is upgraded for maxGap.
func rollingRestart(ctx context.Context, pods int, roles []string, kill bool, maxGap time.Duration, out io.Writer) error {
	dir, err := os.MkdirTemp(memory(), "outrigger-chaos-")
	if err != nil {
		return fmt.Errorf("make a state folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	w, err := newWorld(ctx, dir, pods, out, func(v observer.Violation) { _, _ = fmt.Fprintln(out, v) })
	if err != nil {
		return err
	}
	defer w.close()
	defer w.watch(ctx)()
	return w.measureRestarts(ctx, roles, kill, maxGap)
}

func (w *world) measureRestarts(ctx context.Context, roles []string, kill bool, maxGap time.Duration) error {
	webhooks, err := w.startReplicas(ctx)
	if err != nil {
		return err
	}
	if err := w.makePods(ctx, []string{"e"}); err != nil {
		return err
	}
	if err := w.settle(ctx, int(w.replicas)*len(deploymentNames())); err != nil {
		return err
	}
	if err := w.edit(ctx, "e", strategy("maxUnavailable", restartWindow)); err != nil {
		return err
	}
	if err := w.edit(ctx, "e", image("e", "v2")); err != nil {
		return err
	}
	began := time.Now()
	probes := w.probe(ctx)
	time.Sleep(undisturbed)
	restarts := time.Now()
	err = w.restartEach(ctx, roles, kill, webhooks)
	ended := time.Now()
	made, refused := probes()
	if err != nil {
		return err
	}
	if done := len(w.observer.Upgrades()); done == int(w.replicas)*len(deploymentNames()) {
		return fmt.Errorf("the rollout was over before the restarts were, after %d pods: ask for more --pods", done)
	}
	if err := w.settle(ctx, 1); err != nil {
		return err
	}
	upgrades := w.observer.Upgrades()
	before, during := longestGap(upgrades, began, restarts), longestGap(upgrades, restarts, ended)
	_, err = fmt.Fprintf(w.out, "longest time without an upgrade: %.2f s before, %.2f s during the restarts (%.0f s)\npods made meanwhile: %d, refused: %d\n",
		before.Seconds(), during.Seconds(), ended.Sub(restarts).Seconds(), made, len(refused))
	switch {
	case err != nil:
		return err
	case len(refused) > 0:
		return fmt.Errorf("pods were refused: %s", refused[0])
	case during >= maxGap:
		return fmt.Errorf("no pod was upgraded for %.2f s, the restarts may cost less than %s", during.Seconds(), maxGap)
	}
	return nil
}

// restartEach says what each of those killed cost.
func (w *world) restartEach(ctx context.Context, roles []string, kill bool, webhooks map[string]string) error {
	for _, role := range roles {
		w.say("restart %s", role)
		began := time.Now()
		if err := w.restartReplica(ctx, role, kill, webhooks); err != nil {
			return err
		}
		if kill {
			took := time.Since(began)
			time.Sleep(afterKill)
			w.say("started again after %.1f s, longest time without an upgrade since it was killed: %.1f s",
				took.Seconds(), longestGap(w.observer.Upgrades(), began, time.Now()).Seconds())
		}
	}
	return nil
}

// startReplicas starts two of each role, and a link that leads to one webhook, as a
// Service would.
func (w *world) startReplicas(ctx context.Context) (webhooks map[string]string, err error) {
	l, err := w.open(ctx, cluster.Webhook, "127.0.0.1:1") // nobody is asked yet
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(l, ":")
	service := "https://localhost:" + port
	if err := w.InstallWebhooks(ctx, service); err != nil {
		return nil, err
	}
	webhooks = map[string]string{}
	for _, role := range []string{"webhook-1", "webhook-2", "operator-1", "operator-2", "worker-1", "worker-2"} {
		var args []string
		switch {
		case strings.HasPrefix(role, cluster.Operator):
			args = []string{"--leader-elect=true"}
		case strings.HasPrefix(role, cluster.Webhook):
			args = []string{"--url=" + service}
		}
		started, err := w.StartRole(ctx, role, args...)
		if err != nil {
			return nil, err
		}
		if started.WebhookURL == "" {
			continue
		}
		own, err := url.Parse(started.WebhookURL)
		if err != nil {
			return nil, err
		}
		webhooks[role] = "127.0.0.1:" + own.Port()
		w.links[cluster.Webhook].RedirectNew(webhooks[role])
	}
	return webhooks, nil
}

// restartReplica ends a role with SIGTERM, or SIGKILL. A webhook gets no new connections
// before.
func (w *world) restartReplica(ctx context.Context, role string, kill bool, webhooks map[string]string) error {
	if strings.HasPrefix(role, cluster.Webhook) {
		for other, address := range webhooks {
			if other != role {
				w.links[cluster.Webhook].RedirectNew(address)
			}
		}
	}
	end := w.Stop
	if kill {
		end = w.Kill
	}
	if err := end(role); err != nil {
		return err
	}
	return w.StartAgain(ctx, role)
}

// probe makes pods until the result is asked for: how many, and why some were refused.
func (w *world) probe(ctx context.Context) (result func() (made int, refused []string)) {
	ctx, cancel := context.WithCancel(ctx)
	var probing sync.WaitGroup
	made, refused := 0, []string(nil)
	probing.Go(func() {
		tick := time.NewTicker(probeInterval)
		defer tick.Stop()
		for ; ctx.Err() == nil; made++ {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("probe-%d", made), Labels: map[string]string{"set-e": "on"}}}
			pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
			if err := w.kube.Create(ctx, pod, client.DryRunAll); err != nil && ctx.Err() == nil {
				refused = append(refused, err.Error())
			}
			<-tick.C
		}
	})
	return func() (int, []string) {
		cancel()
		probing.Wait()
		return made, refused
	}
}

// longestGap is the longest time between two moments, of those in a span.
func longestGap(moments []time.Time, from, until time.Time) (longest time.Duration) {
	last := from
	for _, at := range moments {
		if at.After(from) && at.Before(until) {
			longest = max(longest, at.Sub(last))
			last = at
		}
	}
	return max(longest, until.Sub(last))
}
