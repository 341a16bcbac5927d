package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/cluster/process"
	"github.com/outrigger/outrigger/dev/link"
)

const (
	// applyWithin is the maximum time for which a fault is retried, because the API server or the webhook may
	// be down.
	applyWithin = 40 * time.Second
	applyAgain  = 300 * time.Millisecond
	attemptTime = 15 * time.Second
	// readyWithin limits the time until a process is ready again. On a busy machine, an API server needs half a
	// minute to start.
	readyWithin = 3 * time.Minute
	// throttledRPS is the rate limit of a throttled Temporal. This limit is too low for any rollout.
	throttledRPS = "3"
	throttled    = "temporal-throttled"
)

// disturb injects a fault, and returns when the fault has ended.
func (w *fixture) disturb(ctx context.Context, f Fault) error {
	w.mu.Lock()
	w.current[f.Number] = f
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.current, f.Number)
	}()
	switch f.Kind {
	case Kill, Freeze, Exhausted:
		return w.disturbProcess(ctx, f)
	case Cut, Hold, Lose, Delay, TooMany, CutEverybody:
		return w.disturbLink(ctx, f)
	case Conflicts, DeletePods, Relabel, Scale:
		return w.disturbPods(ctx, f)
	case Crash:
		return w.crash(ctx, f)
	case Reject:
		return w.reject(ctx, f)
	case Alias:
		return w.rename(ctx, f)
	default:
		return w.disturbSet(ctx, f)
	}
}

// last waits for the duration of the fault, or until ctx ends.
func last(ctx context.Context, f Fault) {
	select {
	case <-time.After(f.For):
	case <-ctx.Done():
	}
}

// late notifies the observer that writes of pods may be delayed, until over is called. If target is not a
// worker, the API server or etcd, no write is delayed, because only workers write pods.
func (w *fixture) late(target string) (over func()) {
	process, end, _ := strings.Cut(target, "/")
	if end == "temporal" || process != cluster.APIServer && process != cluster.Etcd && !strings.HasPrefix(process, cluster.Worker) {
		return func() {}
	}
	return w.observer.Late()
}

func (w *fixture) disturbProcess(ctx context.Context, f Fault) error {
	switch f.Kind {
	case Freeze:
		defer w.late(f.Target)()
		if err := w.Freeze(f.Target); err != nil {
			return err
		}
		last(ctx, f)
		return w.Thaw(f.Target)
	case Exhausted:
		return w.exhaust(ctx, f)
	}
	if f.Target == cluster.APIServer || f.Target == cluster.Etcd {
		defer w.late(f.Target)()
	}
	if err := w.Kill(f.Target); err != nil {
		return err
	}
	last(ctx, f)
	return w.restart(ctx, f.Target)
}

// restart starts a process, and retries until the process is ready. A role exits if the role cannot reach the
// API server.
func (w *fixture) restart(ctx context.Context, process string) error {
	return retry(ctx, readyWithin, func(ctx context.Context) error { return w.StartAgain(ctx, process) })
}

// supervise restarts roles that exit without a fault, until ctx ends.
func (w *fixture) supervise(ctx context.Context) {
	for {
		select {
		case exit := <-w.Exited():
			if !cluster.IsRole(exit.Name) {
				continue
			}
			w.say("%s ended by itself: %v", exit.Name, exit.Err)
			go func() {
				if err := w.restart(ctx, exit.Name); err != nil && ctx.Err() == nil {
					w.say("%s does not start: %s", exit.Name, err)
				}
			}()
		case <-ctx.Done():
			return
		}
	}
}

// exhaust limits Temporal to a few requests per second.
func (w *fixture) exhaust(ctx context.Context, f Fault) error {
	if err := w.Kill(cluster.Temporal); err != nil {
		return err
	}
	err := w.StartAgain(ctx, throttled)
	if errors.Is(err, process.ErrUnknown) {
		err = w.StartDevServerAs(ctx, throttled, "--dynamic-config-value", "frontend.namespaceRPS="+throttledRPS)
	}
	if err == nil {
		last(ctx, f)
		err = w.Kill(throttled)
	}
	return errors.Join(err, w.restart(ctx, cluster.Temporal))
}

func (w *fixture) disturbLink(ctx context.Context, f Fault) error {
	targets := []string{f.Target}
	state := link.State{Cut: f.Kind == Cut || f.Kind == CutEverybody, Hold: f.Kind == Hold || f.Kind == Lose}
	switch f.Kind {
	case CutEverybody:
		targets = nil
		for _, role := range w.Roles() {
			targets = append(targets, role.Name+"/apiserver")
		}
	case Delay:
		var err error
		if state.Delay, err = time.ParseDuration(f.Value); err != nil {
			return err
		}
	}
	if state.Hold || state.Delay > 0 {
		defer w.late(f.Target)()
	}
	for _, target := range targets {
		l := w.links[target]
		if f.Kind == TooMany {
			l.Redirect(w.throttle)
			defer l.Redirect(w.apiServer)
		}
		l.Set(state)
		defer l.Set(link.State{})
		if f.Kind == Lose {
			defer l.Reset()
		}
	}
	last(ctx, f)
	return nil
}

func (w *fixture) disturbPods(ctx context.Context, f Fault) error {
	switch f.Kind {
	case Scale:
		var percent int32
		if _, err := fmt.Sscanf(f.Value, "%d%%", &percent); err != nil {
			return err
		}
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, w.replicas*percent/100)
		return w.insist(ctx, func(ctx context.Context) error {
			return w.Kube.Patch(ctx, newDeployment(f.Target, 0), client.RawPatch(types.MergePatchType, patch))
		})
	case DeletePods:
		return w.eachPod(ctx, f, client.MatchingLabels{"app": f.Target}, w.deletePod)
	case Relabel:
		if err := w.label(ctx, f, "on", "off"); err != nil {
			return err
		}
		last(ctx, f)
		return w.label(ctx, Fault{Target: f.Target}, "off", "on")
	}
	f.Pods = 40
	for n, end := 0, time.Now().Add(f.For); time.Now().Before(end) && ctx.Err() == nil; n++ {
		chosen, err := w.choose(ctx, f, client.MatchingLabels{"set-" + f.Target: "on"})
		if err != nil {
			last(ctx, Fault{For: 100 * time.Millisecond}) // Another fault may affect the API server.
			continue
		}
		edit := w.merging(`{"metadata":{"annotations":{"chaos/edit":"%d"}}}`, n)
		for i := range chosen {
			_ = edit(ctx, &chosen[i]) // The pod may have been deleted.
		}
	}
	return nil
}

// label changes the label of the pods of a fault from one value to another value. The SidecarSet selects only
// pods whose label has the value on.
func (w *fixture) label(ctx context.Context, f Fault, from, to string) error {
	key := "set-" + f.Target
	return w.eachPod(ctx, f, client.MatchingLabels{key: from}, w.merging(`{"metadata":{"labels":{%q:%q}}}`, key, to))
}

// insist calls do until do succeeds, for at most applyWithin. insist retries, because other faults may
// interfere.
func (w *fixture) insist(ctx context.Context, do func(context.Context) error) error {
	return retry(ctx, applyWithin, func(ctx context.Context) error {
		attempt, done := context.WithTimeout(ctx, attemptTime)
		defer done()
		return do(attempt)
	})
}

// retry calls do until do succeeds, for at most within. retry returns the error of the last attempt.
func retry(ctx context.Context, within time.Duration, do func(context.Context) error) (err error) {
	_ = wait.PollUntilContextTimeout(ctx, applyAgain, within, true, func(ctx context.Context) (bool, error) {
		err = do(ctx)
		return err == nil, nil
	}) // The error of the last attempt is more precise than the timeout.
	return err
}
