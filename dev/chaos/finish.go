package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/cluster"
)

const (
	// convergeWithin is the maximum time until all pods converge after the last fault.
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
	// If a fault has not started its process again, finish starts the process.
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
	if err := w.editAll(ctx, "after"); err != nil {
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
	for _, set := range setNames() {
		if err := w.edit(ctx, set, strategy("maxUnavailable", strconv.Itoa(n))); err != nil {
			return err
		}
	}
	if err := w.editAll(ctx, "last"); err != nil {
		return err
	}
	return w.converge(ctx, 1)
}

func (w *fixture) editAll(ctx context.Context, tag string) error {
	for _, set := range setNames() {
		if err := w.edit(ctx, set, image(set, tag)); err != nil {
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
// revision. A pod whose app crashes before the rollout is complete would use a slot.
func (w *fixture) awaitComplete(ctx context.Context) error {
	return w.insist(ctx, func(ctx context.Context) error {
		sets := &v1alpha1.SidecarSetList{}
		if err := w.Kube.List(ctx, sets); err != nil {
			return err
		}
		for i := range sets.Items {
			progressing := meta.FindStatusCondition(sets.Items[i].Status.Conditions, v1alpha1.ConditionProgressing)
			if progressing == nil || progressing.Reason != v1alpha1.ReasonRolloutComplete || progressing.ObservedGeneration != sets.Items[i].Generation {
				return fmt.Errorf("the rollout of SidecarSet %s is not complete: %v", sets.Items[i].Name, progressing)
			}
			good := sets.Items[i].Status.LastGoodRevision()
			if good == nil || good.Hash != sets.Items[i].Annotations[v1alpha1.HashAnnotation] {
				return fmt.Errorf("the end of the rollout of SidecarSet %s is not recorded: %v", sets.Items[i].Name, good)
			}
		}
		return nil
	})
}

// mend prepares a SidecarSet for the last rollout. It labels the deselected pods again, recreates a missing
// SidecarSet, sets paused to false, partition to 0, maxUnavailable to 15% and the image to final, and resumes
// the run.
func (w *fixture) mend(ctx context.Context, name string) error {
	if err := w.label(ctx, Fault{Target: name}, "off", "on"); err != nil {
		return err
	}
	// If a fault has not recreated the SidecarSet, mend creates the SidecarSet.
	if err := w.create(ctx, newSet(name, "v1")); err != nil {
		return err
	}
	fields := `{"op":"add","path":"/spec/updateStrategy/paused","value":false},{"op":"add","path":"/spec/updateStrategy/partition","value":0},
		{"op":"add","path":"/spec/updateStrategy/maxUnavailable","value":"15%"}`
	patch := "[" + fields + "," + strings.TrimPrefix(image(name, "final"), "[")
	if err := w.edit(ctx, name, patch); err != nil {
		return err
	}
	return w.resume(ctx, name)
}

// converge waits until there are at least pods pods, and no change has been pending for calmTime. Meanwhile,
// converge deletes pods that are not upgradable, so that the owners of these pods create new pods.
func (w *fixture) converge(ctx context.Context, pods int) error {
	return w.convergeWithin(ctx, pods, convergeWithin)
}

func (w *fixture) convergeWithin(ctx context.Context, pods int, within time.Duration) error {
	end, calm := time.Now().Add(within), time.Time{}
	for {
		pending := w.observer.Pending()
		switch {
		case len(pending) > 0 || w.observer.Pods() < pods:
			calm = time.Time{}
		case calm.IsZero():
			calm = time.Now()
		case time.Since(calm) >= calmTime:
			w.say("converged")
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("after %s still pending, of %d: %s\n  SidecarSets:\n    %s", within, len(pending),
				strings.Join(pending[:min(shown, len(pending))], "\n    "), strings.Join(w.rollouts(ctx), "\n    "))
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

// rollouts returns the status and the newest run of each SidecarSet.
func (w *fixture) rollouts(ctx context.Context) []string {
	sets := &v1alpha1.SidecarSetList{}
	if err := w.Kube.List(ctx, sets); err != nil {
		return []string{err.Error()}
	}
	lines := make([]string, 0, len(sets.Items))
	for i := range sets.Items {
		lines = append(lines, w.rollout(ctx, &sets.Items[i]))
	}
	return lines
}

func (w *fixture) rollout(ctx context.Context, set *v1alpha1.SidecarSet) string {
	line := fmt.Sprintf("%s, generation %d (observed %d)", set.Name, set.Generation, set.Status.ObservedGeneration)
	for _, condition := range set.Status.Conditions {
		line += fmt.Sprintf(", %s=%s/%s %q", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	attempt, done := context.WithTimeout(ctx, attemptOfTemporal)
	defer done()
	var status protocol.RolloutStatus
	answer, err := w.Temporal.QueryWorkflow(attempt, protocol.WorkflowID(set.Name, set.UID), "", protocol.StatusQuery)
	if err == nil {
		err = answer.Get(&status)
	}
	if err != nil {
		return line + ", run: " + err.Error()
	}
	return line + fmt.Sprintf(", run of generation %d: %s, paused %+v, %q", status.Generation, status.Phase, status.Pause, status.Message)
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
	sets := &v1alpha1.SidecarSetList{}
	if err := w.Kube.List(ctx, sets); err != nil {
		return err
	}
	allowed := map[string]int{}
	for i := range sets.Items {
		allowed[protocol.WorkflowID(sets.Items[i].Name, sets.Items[i].UID)] = 1
	}
	var problems []error
	err := w.insist(ctx, func(ctx context.Context) error {
		problems = nil
		open := map[string]int{}
		list, err := w.Temporal.ListOpenWorkflow(ctx, &workflowservice.ListOpenWorkflowExecutionsRequest{Namespace: cluster.TemporalNamespace, MaximumPageSize: 1000})
		if err != nil {
			return err
		}
		for _, run := range list.Executions {
			open[run.Execution.WorkflowId]++
		}
		for id, n := range open {
			if n > allowed[id] {
				problems = append(problems, fmt.Errorf("%d open runs of %s, %d may be", n, id, allowed[id]))
			}
		}
		return errors.Join(problems...)
	})
	return err
}
