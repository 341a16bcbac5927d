package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
)

const (
	// convergeWithin is the maximum time until all pods converge after the last fault. In a fleet, a killed worker
	// with an activity in progress delays a rollout by a minute.
	convergeWithin = 4 * time.Minute
	// calmTime is the time without pending changes after which the pods count as converged.
	calmTime      = 3 * time.Second
	convergeAgain = 500 * time.Millisecond
	// shown is the maximum number of pending items in an error.
	shown = 12
)

// carryOut injects each fault at its scheduled time, and returns when all faults have ended.
func (w *fixture) carryOut(ctx context.Context, plan []Fault) {
	w.mu.Lock()
	w.began = time.Now()
	w.mu.Unlock()
	var lasting sync.WaitGroup
	for _, f := range plan {
		select {
		case <-time.After(time.Until(w.began.Add(f.At))):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		w.say("%s", f)
		lasting.Go(func() {
			if err := w.disturb(ctx, f); err != nil {
				w.say("fault #%d could not be carried out: %s", f.Number, err)
			}
		})
	}
	lasting.Wait()
}

// finish ends the effects of faults that delay rollouts, and waits until every pod has the content of the
// matching SidecarSets.
func (w *fixture) finish(ctx context.Context) error {
	w.say("all faults have ended")
	// A failed fault may have left its process stopped.
	for _, process := range []string{cluster.APIServer, cluster.Temporal, cluster.Operator, cluster.Webhook, "worker-1", "worker-2"} {
		if err := w.restart(ctx, process); err != nil {
			return err
		}
	}
	for _, set := range setNames() {
		if err := w.mend(ctx, set); err != nil {
			return fmt.Errorf("repair SidecarSet %s: %w", set, err)
		}
	}
	if err := w.converge(ctx, 1); err != nil {
		return err
	}
	if err := w.upgradeCrashed(ctx); err != nil {
		return err
	}
	return w.checkRuns(ctx)
}

// upgradeCrashed starts a rollout after more pods of each SidecarSet have crashed than maxUnavailable allows.
// The pods crash after their upgrade has completed, so the pods use no slots (SPEC §7.5).
func (w *fixture) upgradeCrashed(ctx context.Context) error {
	if err := w.unmark(ctx, forEver); err != nil {
		return err
	}
	if err := w.replaceCrashed(ctx); err != nil {
		return err
	}
	if err := w.editAll(ctx, func(set string) string { return image(set, "after") }); err != nil {
		return err
	}
	if err := w.converge(ctx, 1); err != nil {
		return err
	}
	if err := w.awaitComplete(ctx); err != nil {
		return err
	}
	n := max(2, int(w.replicas)/12)
	w.say("%d apps of each deployment crash, %d pods of each set may be unavailable", n, n)
	for _, deployment := range deploymentNames() {
		if err := w.crash(ctx, Fault{Target: deployment, Pods: n, Draw: uint64(n)}); err != nil {
			return err
		}
	}
	if err := w.editAll(ctx, func(string) string { return strategy("maxUnavailable", strconv.Itoa(n)) }); err != nil {
		return err
	}
	if err := w.editAll(ctx, func(set string) string { return image(set, "last") }); err != nil {
		return err
	}
	return w.converge(ctx, 1)
}

// editAll applies to each SidecarSet the operation that change returns.
func (w *fixture) editAll(ctx context.Context, change func(set string) string) error {
	for _, set := range setNames() {
		if err := w.edit(ctx, set, change(set)); err != nil {
			return err
		}
	}
	return nil
}

// replaceCrashed deletes the pods whose apps crash. Some of these apps crashed during the upgrade of the pod,
// so the pods use slots.
func (w *fixture) replaceCrashed(ctx context.Context) error {
	return w.eachPod(ctx, Fault{}, nil, func(ctx context.Context, pod *corev1.Pod) error {
		if pod.Annotations[crashedAnnotation] == "" {
			return nil
		}
		return w.deletePod(ctx, pod)
	})
}

// awaitComplete waits until every SidecarSet has the reason RolloutComplete and its current content is a good
// revision. A pod whose app crashes before the rollout is complete uses a slot.
func (w *fixture) awaitComplete(ctx context.Context) error {
	return w.insist(ctx, func(ctx context.Context) error {
		sets := &v1alpha1.SidecarSetList{}
		if err := w.Kube.List(ctx, sets); err != nil {
			return err
		}
		for i := range sets.Items {
			set := &sets.Items[i]
			if set.ProgressingReason() != v1alpha1.ReasonRolloutComplete || !set.Status.IsLastGood(set.Annotations[v1alpha1.HashAnnotation]) {
				return fmt.Errorf("the rollout of SidecarSet %s is not complete, or the end is not recorded: %+v", set.Name, set.Status)
			}
		}
		return nil
	})
}

// mend prepares a SidecarSet for the last rollout. mend labels the deselected pods again, recreates a missing
// SidecarSet, starts the last rollout without a pause or a partition, and resumes the run.
func (w *fixture) mend(ctx context.Context, name string) error {
	if err := w.label(ctx, Fault{Target: name}, "off", "on"); err != nil {
		return err
	}
	// A failed fault may have left the SidecarSet deleted.
	if err := w.create(ctx, newSet(name, "v1")); err != nil {
		return err
	}
	err := w.edit(ctx, name, strategy("paused", "false"), strategy("partition", "0"), strategy("maxUnavailable", `"15%"`), image(name, "final"))
	if err != nil {
		return err
	}
	return w.resume(ctx, name)
}

// converge waits until the cluster has at least the given number of pods, and no change has been pending for
// calmTime. Meanwhile, converge deletes pods that are not upgradable, so that the owners of these pods create
// new pods.
func (w *fixture) converge(ctx context.Context, pods int) error {
	end, calm := time.Now().Add(convergeWithin), time.Time{}
	for {
		pending := w.observer.Pending()
		switch {
		case len(pending) > 0 || w.observer.Totals().Pods < pods:
			calm = time.Time{}
		case calm.IsZero():
			calm = time.Now()
		case time.Since(calm) >= calmTime:
			w.say("converged")
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("after %s still pending, of %d: %s%s", convergeWithin, len(pending),
				strings.Join(pending[:min(shown, len(pending))], "\n    "), w.rollouts(ctx))
		}
		if len(pending) > 0 {
			w.replace(ctx)
		}
		select {
		case <-time.After(convergeAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// rollouts returns the output of kubectl sidecarset status for each SidecarSet.
func (w *fixture) rollouts(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	sets := &v1alpha1.SidecarSetList{}
	if err := w.Kube.List(ctx, sets); err != nil {
		return "\n" + err.Error()
	}
	var text strings.Builder
	for i := range sets.Items {
		status, err := w.command(ctx, "", "kubectl-sidecarset", "status", sets.Items[i].Name, "--kubeconfig="+w.Kubeconfig, "--cache-dir="+w.dir)
		if err != nil {
			status = err.Error()
		}
		text.WriteString("\n" + status)
	}
	return text.String()
}

// replace deletes the pods that are not upgradable.
func (w *fixture) replace(ctx context.Context) {
	for _, name := range w.observer.NotUpgradable() {
		_, name, _ = strings.Cut(name, "/")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		_ = w.Kube.Delete(ctx, pod) // The next check of pending pods retries.
	}
}

// checkRuns returns an error if a SidecarSet has more than one open run, or if a deleted
// SidecarSet has an open run.
func (w *fixture) checkRuns(ctx context.Context) error {
	return w.insist(ctx, func(ctx context.Context) error {
		sets := &v1alpha1.SidecarSetList{}
		if err := w.Kube.List(ctx, sets); err != nil {
			return err
		}
		list, err := w.Temporal.ListOpenWorkflow(ctx, &workflowservice.ListOpenWorkflowExecutionsRequest{Namespace: cluster.TemporalNamespace, MaximumPageSize: 1000})
		if err != nil {
			return err
		}
		tooMany := map[string]int{}
		for _, run := range list.Executions {
			tooMany[run.Execution.WorkflowId]++
		}
		for i := range sets.Items {
			tooMany[protocol.WorkflowID(sets.Items[i].Name, sets.Items[i].UID)]--
		}
		maps.DeleteFunc(tooMany, func(_ string, n int) bool { return n <= 0 })
		if len(tooMany) > 0 {
			return fmt.Errorf("open runs that may not be, by workflow ID: %v", tooMany)
		}
		return nil
	})
}
