package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/link"
	"github.com/outrigger/outrigger/dev/observer"
)

// probeInterval is the time between two dry-run creations of a pod, which check that pods are
// admitted.
const probeInterval = 200 * time.Millisecond

// restart measures how much a rollout is delayed by the restart of each replica of each role.
type restart struct {
	sizes
	replicas int
	kill     bool
	maxGap   time.Duration

	h *harness
	// service forwards connections to one webhook, like a Service. webhooks contains the
	// addresses of all webhooks.
	service  *link.Link
	webhooks map[string]string
}

func newRestart() *cobra.Command {
	// The small maxUnavailable makes the rollout last longer than the restarts.
	b := &restart{sizes: sizes{pods: 1000, sets: 1, workers: 1, window: "4"}}
	cmd := subcommand("restart", "Restart each replica of each role during a rollout", b)
	cmd.Flags().IntVar(&b.pods, "pods", b.pods, "number of pods")
	cmd.Flags().StringVar(&b.window, "window", b.window, "maxUnavailable: number or percent")
	cmd.Flags().IntVar(&b.replicas, "replicas", 2, "replicas of each role")
	cmd.Flags().BoolVar(&b.kill, "kill", false, "end the processes with SIGKILL instead of SIGTERM")
	cmd.Flags().DurationVar(&b.maxGap, "max-gap", 2*time.Second, "fail when no pod is upgraded for this long; 0: never")
	return cmd
}

func (b *restart) check() error {
	if b.replicas < 1 {
		return fmt.Errorf("--replicas %d: at least 1", b.replicas)
	}
	return b.sizes.check()
}

func (b *restart) run(ctx context.Context, out io.Writer) (err error) {
	if b.h, err = startHarness(ctx, forPods(b.pods)); err != nil {
		return err
	}
	defer b.h.close()
	if err := b.startReplicas(ctx); err != nil {
		return err
	}
	defer b.service.Close()
	if err := b.h.watch(ctx); err != nil {
		return err
	}
	if err := b.h.populate(ctx, b.h.newSets("set", 1, b.window), b.pods); err != nil {
		return err
	}
	if err := b.h.changeImage(ctx); err != nil {
		return err
	}
	var lines report
	lines.add("pods", "%d", b.pods)
	lines.add("window", "%s", b.window)
	if err := b.awaitMore(ctx); err != nil {
		return err
	}
	probes := b.probe(ctx)
	undisturbed, _ := b.h.watched.Updates()
	began := time.Now()
	if err := b.restartAll(ctx, &lines); err != nil {
		return err
	}
	created, rejected := probes()
	asked, _ := b.h.watched.Updates()
	if done := b.h.watched.View().Updated; done == b.pods {
		return fmt.Errorf("the rollout was over before the restarts were: use more --pods than %d", done)
	}
	gap := longestGap(asked, began)
	lines.seconds("longest gap before, seconds", longestGap(undisturbed, time.Time{}))
	lines.seconds("longest gap during the restarts, seconds", gap)
	lines.add("pods created meanwhile", "%d", created)
	lines.add("pods rejected meanwhile", "%d", len(rejected))
	if _, err := b.h.watched.Await(ctx, observer.Converged(b.pods)); err != nil {
		return err
	}
	if _, err := io.WriteString(out, lines.String()); err != nil {
		return err
	}
	return b.judge(rejected, gap)
}

func (b *restart) restartAll(ctx context.Context, lines *report) error {
	for n := range b.replicas {
		for _, role := range []string{cluster.Worker, cluster.Operator, cluster.Webhook} {
			if err := b.restart(ctx, replicaName(role, n+1), lines); err != nil {
				return fmt.Errorf("restart %s: %w", replicaName(role, n+1), err)
			}
		}
	}
	return nil
}

// judge returns an error if pods were rejected during the restarts, or if the restarts delayed
// the rollout.
func (b *restart) judge(rejected []string, gap time.Duration) error {
	switch {
	case len(rejected) > 0 && b.replicas > 1 && !b.kill:
		return fmt.Errorf("pods were rejected: %s", rejected[0])
	case b.maxGap > 0 && gap >= b.maxGap:
		return fmt.Errorf("no pod was upgraded for %.2f s, the restarts may cost less than %s", gap.Seconds(), b.maxGap)
	}
	return nil
}

// startReplicas starts the replicas of each role. The operators elect a leader, and the webhooks
// share one address.
func (b *restart) startReplicas(ctx context.Context) (err error) {
	if b.service, err = link.Open(ctx, "127.0.0.1:1"); err != nil { // no server listens at this address until a webhook runs
		return err
	}
	_, port, _ := strings.Cut(b.service.Address(), ":")
	service := "https://localhost:" + port
	if err := b.h.stack.InstallWebhooks(ctx, service); err != nil {
		return err
	}
	b.webhooks = map[string]string{}
	for n := range b.replicas {
		for role, args := range map[string][]string{
			cluster.Operator: {"--leader-elect=true"}, cluster.Worker: nil, cluster.Webhook: {"--url=" + service},
		} {
			started, err := b.h.stack.StartRole(ctx, replicaName(role, n+1), args...)
			if err != nil {
				return err
			}
			if started.WebhookURL == "" {
				continue
			}
			own, err := url.Parse(started.WebhookURL)
			if err != nil {
				return err
			}
			b.webhooks[started.Name] = "127.0.0.1:" + own.Port()
			b.service.RedirectNew(b.webhooks[started.Name])
		}
	}
	return nil
}

// restart stops a process and starts it again. It returns once the rollout makes progress. Before
// a webhook is stopped, new connections are redirected to another webhook, if there is one.
func (b *restart) restart(ctx context.Context, name string, lines *report) error {
	for other, address := range b.webhooks {
		if b.webhooks[name] != "" && other != name {
			b.service.RedirectNew(address)
		}
	}
	end := b.h.stack.Stop
	if b.kill {
		end = b.h.stack.Kill
	}
	ended := time.Now()
	if err := end(name); err != nil {
		return err
	}
	if err := b.h.stack.StartAgain(ctx, name); err != nil {
		return err
	}
	ready := time.Since(ended)
	if err := b.awaitMore(ctx); err != nil {
		return err
	}
	asked, _ := b.h.watched.Updates()
	status, err := b.h.stack.Process(name)
	if err != nil {
		return err
	}
	used, err := usageOf(status.PID)
	if err != nil {
		return fmt.Errorf("read the memory: %w", err)
	}
	lines.seconds(name+": until ready, seconds", ready)
	lines.add(name+": peak memory, MiB", "%.0f", used.peak)
	lines.seconds(name+": longest gap around it, seconds", longestGap(asked, ended))
	b.h.progress(name + " has restarted")
	return nil
}

// awaitMore waits until two percent more of the pods are written.
func (b *restart) awaitMore(ctx context.Context) error {
	until := min(b.h.watched.View().Updated+max(b.pods/50, 1), b.pods)
	_, err := b.h.watched.Await(ctx, func(v observer.View) bool { return v.Updated >= until })
	return err
}

// longestGap returns the longest time between two consecutive updates. It ignores gaps that ended
// before after.
func longestGap(updates []observer.Update, after time.Time) (longest time.Duration) {
	slices.SortFunc(updates, func(a, b observer.Update) int { return a.At.Compare(b.At) })
	for i := 1; i < len(updates); i++ {
		if updates[i].At.After(after) {
			longest = max(longest, updates[i].At.Sub(updates[i-1].At))
		}
	}
	return longest
}

// probe creates pods by dry run until result is called.
func (b *restart) probe(ctx context.Context) (result func() (created int, rejected []string)) {
	ctx, cancel := context.WithCancel(ctx)
	var probing sync.WaitGroup
	created, rejected := 0, []string(nil)
	probing.Go(func() {
		tick := time.NewTicker(probeInterval)
		defer tick.Stop()
		for ; ctx.Err() == nil; created++ {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("probe-%d", created), Labels: map[string]string{appLabel: "set-1"}}}
			pod.Spec = b.h.podTemplate().Spec
			if err := b.h.stack.Kube.Create(ctx, pod, client.DryRunAll); err != nil && ctx.Err() == nil {
				rejected = append(rejected, err.Error())
			}
			<-tick.C
		}
	})
	return func() (int, []string) {
		cancel()
		probing.Wait()
		return created, rejected
	}
}
