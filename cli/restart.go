package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/kube"
	"github.com/outrigger/outrigger/output"
)

// evictInterval is the time between two reads of the pods.
const evictInterval = 2 * time.Second

// maxRejections is the number of rejected evictions after which a restart reads the pods again. A
// PodDisruptionBudget can reject the evictions of thousands of pods.
const maxRejections = 20

func newRestart(s *shared) *cobra.Command {
	var timeout time.Duration
	var dryRun string
	cmd := s.ofSet(&cobra.Command{
		Use:   "restart NAME",
		Short: "Evict the pods that get the newest version only when they are recreated",
		Long: "Evict the pods that get the newest version of a SidecarSet only when they are recreated: pods that cannot be upgraded\n" +
			"in place, and pods without the sidecars. At most maxUnavailable pods are evicted at once; the next ones follow when\n" +
			"the owners of the evicted pods have as many ready pods as before, or as their replicas. Evictions that a\n" +
			"PodDisruptionBudget rejects are retried. Pods are listed, and not evicted, if they have no controller, if their\n" +
			"restartPolicy is not Always, or if the webhook is not called for them. A restart ends with an error while the rollout\n" +
			"is paused or in progress.",
		Example: `  kubectl sidecarset restart logs --dry-run=client   # list the pods
  kubectl sidecarset restart logs --dry-run=server   # have the API server try each eviction
  kubectl sidecarset restart logs --timeout 10m`,
		Args: takes(1, aSidecarSet),
	})
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "time limit; 0: none")
	addDryRun(cmd, &dryRun)
	cmd.Flags().Lookup("dry-run").NoOptDefVal = "client"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if timeout < 0 {
			return errors.New("--timeout must be positive, or 0 for none")
		}
		if err := checkDryRun(dryRun); err != nil {
			return err
		}
		c, err := s.cluster()
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		r := &restarter{cluster: c, shared: s, name: args[0], rejections: map[string]rejection{}}
		return r.run(ctx, timeout, dryRun)
	}
	return cmd
}

// restarter evicts pods, and waits for their replacements.
type restarter struct {
	*cluster
	shared *shared
	name   string
	// rejections maps each pod whose eviction was rejected to the last rejection.
	rejections map[string]rejection
	// rejected counts the rejections of all pods.
	rejected int
	// failed contains the errors of evictions that are not retried.
	failed []error
	// waiting contains the reasons why the restart has not ended.
	waiting []string
}

// rejection is the rejection of an eviction: its reason, and its number among all rejections.
type rejection struct {
	reason string
	number int
}

func (r *restarter) run(ctx context.Context, timeout time.Duration, dryRun string) error {
	start, err := r.read(ctx)
	if err != nil {
		return err
	}
	if dryRun != "none" || len(start.Evict) == 0 {
		if err := r.shared.print(output.Flag{}, start); err != nil || dryRun != "server" {
			return err
		}
		return r.tryEvictions(ctx, start.Evict)
	}
	err = r.restart(ctx, start)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		return fmt.Errorf("not all pods of SidecarSet %s are recreated after %s: %s", start.Name, timeout, strings.Join(r.waiting, "; "))
	}
	return err
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
	// The webhook is required, because a pod for which the webhook is not called must not be evicted: the
	// recreated pod would get no sidecars.
	installed, err := kube.PodWebhook(ctx, r)
	if err != nil {
		return nil, explain(err, "get the webhook of pods")
	}
	in.Webhook = view.Webhook{Installed: installed, Absent: installed == nil}
	return view.NewRestart(in)
}

func (r *restarter) restart(ctx context.Context, now *view.Restart) error {
	evictions := view.NewEvictions(now)
	for {
		for _, owner := range evictions.Owners() {
			if replicas, ok := r.replicas(ctx, owner, now); ok {
				evictions.Limit(owner, replicas)
			}
		}
		left, open := evictions.Next(now)
		if len(left) == 0 && evictions.Waiting(now) == "" {
			_, err := fmt.Fprintf(r.shared.Out, "sidecarset/%s: %d evicted, and their owners have as many ready pods as before\n%s", now.Name, evictions.Done, r.shared.suggested(now.KeptText()))
			return errors.Join(err, r.failure())
		}
		r.waiting = nil
		if err := r.evictSome(ctx, now, left, open, evictions); err != nil {
			return err
		}
		if lacking := evictions.Waiting(now); lacking != "" {
			r.waiting = append(r.waiting, lacking)
		}
		select {
		case <-ctx.Done():
			return errors.Join(r.failure(), errors.New("interrupted; the other pods are not evicted"))
		case <-time.After(evictInterval):
		}
		var err error
		if now, err = r.read(ctx); err != nil {
			return err
		}
	}
}

// failure returns the error of the failed evictions, or nil.
func (r *restarter) failure() error {
	switch len(r.failed) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("1 eviction failed: %w", r.failed[0])
	}
	return fmt.Errorf("%d evictions failed: %w", len(r.failed), errors.Join(r.failed...))
}

// replicas returns the number of replicas of an owner. If the number is unknown, replicas returns false.
func (r *restarter) replicas(ctx context.Context, owner view.Workload, now *view.Restart) (int, bool) {
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	replicas, known, err := kube.Replicas(ctx, r.live, kind, client.ObjectKey{Namespace: owner.Namespace, Name: owner.Name})
	if apierrors.IsNotFound(err) {
		// If an owner with pods is not found, the name of the owner may be wrong, because the name of a
		// Deployment is derived from the name of its ReplicaSet.
		return 0, now.Pods(owner) == 0
	}
	return replicas, known && err == nil
}

// evictSome evicts pods of left until open slots are used, or until maxRejections evictions are rejected. A
// rejected eviction does not use a slot, and is retried after the evictions of the other pods.
func (r *restarter) evictSome(ctx context.Context, now *view.Restart, left view.BehindPods, open int, evictions *view.Evictions) error {
	slices.SortStableFunc(left, func(a, b view.BehindPod) int {
		return cmp.Compare(r.rejections[podKey(&a)].number, r.rejections[podKey(&b)].number)
	})
	for i := range left {
		if open == 0 || len(r.waiting) == maxRejections {
			break
		}
		pod := &left[i]
		named := podKey(pod)
		line := "evicted " + named + ": " + pod.Cause() // Cause omits the command, because the eviction has the same effect.
		switch err := r.evict(ctx, pod); {
		case apierrors.IsTooManyRequests(err):
			line = "the eviction of " + named + " is rejected: " + err.Error()
			r.waiting = append(r.waiting, line)
			r.rejected++
			known := r.rejections[named].reason == err.Error()
			r.rejections[named] = rejection{err.Error(), r.rejected}
			if known {
				continue
			}
			line += " (retried)"
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			continue // The pod was replaced.
		case err != nil && ctx.Err() != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
			return err
		case err != nil:
			err = explain(err, "evict pod "+named)
			r.failed, line = append(r.failed, err), err.Error()
			evictions.Failed(pod)
		default:
			evictions.Evicted(now, pod)
			open--
		}
		if _, err := fmt.Fprintln(r.shared.Out, Printable(line)); err != nil {
			return err
		}
	}
	return nil
}

// tryEvictions sends an eviction of each pod in a dry run, and prints the rejections.
func (r *restarter) tryEvictions(ctx context.Context, pods view.BehindPods) error {
	for i := range pods {
		err := r.evict(ctx, &pods[i], client.DryRunAll)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			continue
		}
		named := podKey(&pods[i])
		if !apierrors.IsTooManyRequests(err) {
			r.failed = append(r.failed, explain(err, "evict pod "+named))
		} else if _, err := fmt.Fprintf(r.shared.Out, "the eviction of %s is rejected: %v\n", named, err); err != nil {
			return err
		}
	}
	return r.failure()
}

func podKey(pod *view.BehindPod) string { return pod.Namespace + "/" + pod.Name }

func (r *restarter) evict(ctx context.Context, pod *view.BehindPod, options ...client.SubResourceCreateOption) error {
	return r.live.SubResource("eviction").Create(ctx, pod.Pod(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.Pod().UID}},
	}, options...)
}
