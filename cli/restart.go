package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/output"
)

// evictInterval is the time between two reads of the pods.
const evictInterval = 2 * time.Second

func newRestart(s *shared) *cobra.Command {
	var timeout time.Duration
	var dryRun bool
	cmd := s.ofSet(&cobra.Command{
		Use:   "restart NAME",
		Short: "Evict the pods that get the newest version only when they are recreated",
		Long: "Evict the pods that get the newest version of a SidecarSet only when they are recreated: pods that cannot be upgraded\n" +
			"in place, and pods without the sidecars. At most maxUnavailable pods are evicted at once; the next ones follow when\n" +
			"the owners of the evicted pods have as many ready pods as before. Evictions that a PodDisruptionBudget rejects are\n" +
			"retried. Pods without a controller and pods of Jobs are listed, and not evicted.",
		Example: `  kubectl sidecarset restart logs --dry-run       # list the pods
  kubectl sidecarset restart logs --timeout 10m`,
		Args: takes(1, aSidecarSet),
	})
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "time limit; 0: none")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "list the pods, and evict none")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if timeout < 0 {
			return errors.New("--timeout must be positive, or 0 for none")
		}
		c, err := s.cluster()
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		// Pods that the webhook is not called for would be evicted in vain.
		installed, err := kube.PodWebhook(ctx, c)
		if err != nil {
			return explain(err, "get the webhook of pods")
		}
		r := &restarter{cluster: c, shared: s, name: args[0], webhook: view.Webhook{Installed: installed, Absent: installed == nil}}
		start, err := r.read(ctx)
		if err != nil {
			return err
		}
		if dryRun || len(start.Evict) == 0 {
			return s.print(output.Flag{}, start)
		}
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		err = r.restart(ctx, start)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("not all pods of SidecarSet %s are recreated after %s: %s", start.Name, timeout, r.waiting)
		}
		return err
	}
	return cmd
}

// restarter evicts pods, and waits for their replacements.
type restarter struct {
	*cluster
	shared  *shared
	name    string
	webhook view.Webhook
	// rejections has the last reason for each pod whose eviction was rejected.
	rejections map[string]string
	// waiting says what the restart waits for.
	waiting string
}

func (r *restarter) read(ctx context.Context) (*view.Restart, error) {
	set, err := r.set(ctx, r.name)
	if err != nil {
		return nil, err
	}
	in, err := r.input(ctx, set, "")
	if err != nil {
		return nil, err
	}
	in.Webhook = r.webhook
	return view.NewRestart(in)
}

func (r *restarter) restart(ctx context.Context, now *view.Restart) error {
	r.rejections = map[string]string{}
	evictions := view.NewEvictions(now)
	for {
		left, open := evictions.Next(now)
		r.waiting = evictions.Waiting(now)
		if len(left) == 0 && r.waiting == "" {
			_, err := fmt.Fprintf(r.shared.Out, "sidecarset/%s: %d evicted, and their owners have as many ready pods as before\n%s", now.Name, evictions.Done, now.KeptText())
			return err
		}
		if r.waiting == "" && open == 0 {
			r.waiting = "upgrades use all slots of maxUnavailable"
		}
		if err := r.evictSome(ctx, now, left, open, evictions); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted; the other pods are not evicted")
		case <-time.After(evictInterval):
		}
		var err error
		if now, err = r.read(ctx); err != nil {
			return err
		}
	}
}

// evictSome evicts as many pods as slots are open. Pods that are rejected do not use slots.
func (r *restarter) evictSome(ctx context.Context, now *view.Restart, left view.BehindPods, open int, evictions *view.Evictions) error {
	for i := range left {
		if open == 0 {
			break
		}
		pod := &left[i]
		named := pod.Namespace + "/" + pod.Name
		line := "evicted " + named + ": " + pod.Reason
		switch err := r.evict(ctx, pod); {
		case apierrors.IsTooManyRequests(err):
			r.waiting = "the eviction of " + named + " is rejected: " + err.Error()
			if r.rejections[named] == err.Error() {
				continue
			}
			r.rejections[named], line = err.Error(), r.waiting+" (retried)"
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			continue // the pod was replaced
		case err != nil:
			return explain(err, "evict pod "+named)
		default:
			evictions.Evicted(now, pod)
			open--
		}
		if _, err := fmt.Fprintln(r.shared.Out, line); err != nil {
			return err
		}
	}
	return nil
}

func (r *restarter) evict(ctx context.Context, pod *view.BehindPod) error {
	return r.live.SubResource("eviction").Create(ctx, pod.Pod(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.Pod().UID}},
	})
}
