package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/cli/view"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/output"
)

const (
	// maxUnauthorized is the number of consecutive 401 responses that a watch tolerates. Two responses are
	// consecutive if at most unauthorizedGap is between them.
	maxUnauthorized = 5
	unauthorizedGap = 2 * time.Minute
	// showInterval is the minimum time between two updates of the output.
	showInterval = 250 * time.Millisecond
	// readInterval is the time between two reads of the run, the policy and the Lease of the operator.
	readInterval = 3 * time.Second
	// After the pods have converged, the run is read every endInterval until the run ends. endTimeout limits
	// this wait, because the rollout has succeeded even if no worker completes the run.
	endInterval = time.Second
	endTimeout  = 10 * time.Second
)

var (
	// errInterrupted is the error of a watch that the user interrupted.
	errInterrupted = errors.New("interrupted; the rollout continues")
	// errScopeChanged is the error of a watch if the SidecarSet selects other pods than at the start of the
	// watch.
	errScopeChanged = errors.New("the SidecarSet selects other pods now")
)

// follow calls show with the current state of a rollout at the start, after each change, and at regular
// intervals, until the rollout ends.
type follow func(ctx context.Context, show func(*view.Rollout) error) error

// watch waits for the end of a rollout. In a terminal, watch redraws the progress. Otherwise, watch prints a
// line for each change.
func (s *shared) watch(ctx context.Context, c *cluster, set *v1alpha1.SidecarSet, o output.Flag, end rolloutEnd) error {
	follow := func(ctx context.Context, show func(*view.Rollout) error) error {
		for set := set; ; {
			err := c.followScope(ctx, set, s.readRun, &end, show)
			if !errors.Is(err, errScopeChanged) {
				return err
			}
			if set, err = c.set(ctx, set.Name); err != nil {
				return err
			}
		}
	}
	var err error
	if s.terminal() && !o.Structured() {
		err = s.live(ctx, o, func(ctx context.Context, show func(model) error) error {
			return follow(ctx, func(rollout *view.Rollout) error { return show(rollout) })
		})
	} else {
		err = s.lines(ctx, set.Name, o, follow)
	}
	switch {
	case ctx.Err() != nil && !end.converged.IsZero():
		return end.err // The rollout has ended, but the run has not ended.
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the rollout of SidecarSet %s has not ended after %s", set.Name, end.timeout)
	case ctx.Err() != nil:
		return errInterrupted
	}
	return err
}

// lines prints a line for each change, and to the error output a line for each fault of the installation.
func (s *shared) lines(ctx context.Context, name string, o output.Flag, follow follow) error {
	last, fault := "", ""
	err := follow(ctx, func(rollout *view.Rollout) error {
		if reason := rollout.Fault.Reason; reason != fault {
			fault = reason
			_, _ = fmt.Fprint(s.ErrOut, s.suggested(rollout.Fault.Line()))
		}
		line := rollout.Line()
		if line == last {
			return nil
		}
		last = line
		if o.Structured() {
			return s.print(o, rollout)
		}
		_, err := fmt.Fprintln(s.Out, Printable(s.suggested(line)))
		return err
	})
	if err == nil && !o.Structured() {
		_, err = fmt.Fprintf(s.Out, "sidecarset/%s: rollout ended\n", name)
	}
	return err
}

// followScope calls show with the state of the rollout until end is reached. If the SidecarSet selects other
// pods than from, followScope returns errScopeChanged.
func (c *cluster) followScope(ctx context.Context, from *v1alpha1.SidecarSet, readRun func(context.Context, *v1alpha1.SidecarSet) view.RunInput, end *rolloutEnd, show func(*view.Rollout) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cached, changed, err := c.watched(ctx, from, cancel)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(readInterval)
	defer ticker.Stop()
	var also reads
	var read time.Time
	for {
		var set v1alpha1.SidecarSet
		if err := cached.Get(ctx, client.ObjectKeyFromObject(from), &set); err != nil {
			return watchError(ctx, from, err)
		}
		if set.Spec.Namespace != from.Spec.Namespace || !equality.Semantic.DeepEqual(set.Spec.Selector, from.Spec.Selector) {
			return errScopeChanged
		}
		if time.Since(read) >= readInterval {
			also = c.reads(ctx, &set, readRun, time.Now())
			also.nodes = view.Nodes{} // A watch must not read nodes every few seconds.
			read = time.Now()
			if err := ctx.Err(); err != nil {
				return watchError(ctx, from, err) // The reads may be incomplete, because the context ended.
			}
		}
		also.now = time.Now()
		rollout, err := cached.rollout(ctx, &set, also)
		if err != nil {
			return watchError(ctx, from, err)
		}
		if err := show(rollout); err != nil {
			return err
		}
		if ended, err := end.reached(rollout); ended {
			return err
		}
		next := ticker.C
		if !end.converged.IsZero() {
			read, next = time.Time{}, time.After(endInterval)
		}
		select {
		case <-ctx.Done():
			return watchError(ctx, from, ctx.Err())
		case <-changed:
			time.Sleep(showInterval) // Changes within showInterval are shown together.
		case <-next:
		}
	}
}

// rolloutEnd decides when a watch ends.
type rolloutEnd struct {
	timeout        time.Duration
	failOnDegraded bool
	// converged is the time at which the pods converged, or zero. err is the error of the rollout at this
	// time.
	converged time.Time
	err       error
}

// degradedError is the error of a watch that ends because the SidecarSet is degraded.
type degradedError struct{ set, reason, message string }

func (e degradedError) Error() string {
	return fmt.Sprintf("SidecarSet %s is degraded: %s: %s", e.set, e.reason, e.message)
}

// ExitCode returns the exit code of a command that failed with err.
func ExitCode(err error) int {
	if _, degraded := errors.AsType[degradedError](err); degraded {
		return 2
	}
	return 1
}

// reached reports whether the watch ends. reached returns an error if the SidecarSet is degraded, or if the
// rollout did not upgrade all pods.
func (e *rolloutEnd) reached(rollout *view.Rollout) (bool, error) {
	if degraded := rollout.Degraded(); degraded != nil && e.failOnDegraded {
		return true, degradedError{rollout.Name, degraded.Reason, degraded.Message}
	}
	done, err := rollout.Done()
	switch {
	case !done:
		e.converged, e.err = time.Time{}, nil
		return false, nil
	case e.converged.IsZero():
		e.converged = time.Now()
	}
	e.err = err
	return !rollout.RunEnds() || time.Since(e.converged) >= endTimeout, err
}

// watchError returns the error of a watch. If the context has ended, watchError returns the cause.
func watchError(ctx context.Context, set *v1alpha1.SidecarSet, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("SidecarSet %s was deleted", set.Name)
	}
	return err
}

// watched returns a cluster that reads from a cache of the objects of a SidecarSet, and a channel that reports
// changes. If a watch is forbidden, or unauthorized several times, the cache calls cancel with the error.
func (c *cluster) watched(ctx context.Context, set *v1alpha1.SidecarSet, cancel context.CancelCauseFunc) (*cluster, <-chan struct{}, error) {
	informers, err := c.cacheOf(set, cancel)
	if err != nil {
		return nil, nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	changed := make(chan struct{}, 1)
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := toolscache.ResourceEventHandlerFuncs{AddFunc: notify, UpdateFunc: func(_, o any) { notify(o) }, DeleteFunc: notify}
	for _, object := range []client.Object{&v1alpha1.SidecarSet{}, &corev1.Pod{}, &appsv1.ControllerRevision{}} {
		informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(handler)
		}
		if err != nil {
			return nil, nil, explain(err, "watch SidecarSet "+set.Name)
		}
	}
	go func() { cancel(informers.Start(ctx)) }()
	if !informers.WaitForCacheSync(ctx) {
		return nil, nil, watchError(ctx, set, ctx.Err())
	}
	cached := *c
	cached.Reader, cached.page = informers, 0
	return &cached, changed, nil
}

// refusals counts consecutive 401 responses. A single 401 does not end a watch, because a credential plugin
// renews expired credentials only after a 401. refusals is safe for concurrent use.
type refusals struct {
	mu    sync.Mutex
	count int
	at    time.Time
}

// last counts a 401 response at the time now, and reports whether the watch ends.
func (r *refusals) last(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.at) > unauthorizedGap {
		r.count = 0
	}
	r.count, r.at = r.count+1, now
	return r.count > maxUnauthorized
}

func (c *cluster) cacheOf(set *v1alpha1.SidecarSet, cancel context.CancelCauseFunc) (cache.Cache, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return nil, err
	}
	var answers refusals
	pods := cache.ByObject{Label: scope.PodSelector()}
	if namespace := scope.OneNamespace(); namespace != "" {
		pods.Namespaces = map[string]cache.Config{namespace: {}}
	}
	return cache.New(c.config, cache.Options{
		Scheme:           c.live.Scheme(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.SidecarSet{}: {Field: fields.OneTermEqualSelector("metadata.name", set.Name)},
			&corev1.Pod{}:          pods,
			&appsv1.ControllerRevision{}: {
				Namespaces: map[string]cache.Config{c.systemNamespace: {}},
				Label:      labels.SelectorFromSet(labels.Set{v1alpha1.SidecarSetNameLabel: set.Name}),
			},
		},
		DefaultWatchErrorHandler: func(ctx context.Context, reflector *toolscache.Reflector, err error) {
			if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) && answers.last(time.Now()) {
				cancel(explain(err, "watch SidecarSet "+set.Name))
			}
		},
	})
}
