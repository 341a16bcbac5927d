package cli

import (
	"context"
	"errors"
	"fmt"
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
	// showInterval is the least time between two models.
	showInterval = 250 * time.Millisecond
	// askInterval is how often the run is asked while somebody watches.
	askInterval = 3 * time.Second
)

// showFunc takes a newer model, and followFunc shows models until the rollout ends.
type (
	showFunc   func(*view.Rollout) error
	followFunc func(context.Context, showFunc) error
)

// watchStatus waits for the end of a rollout: live in a terminal, line by line without.
func (s *shared) watchStatus(ctx context.Context, c *cluster, name string, o output.Flag, w watch) error {
	if w.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.timeout)
		defer cancel()
	}
	ask, done := s.lookOnly()
	defer done()
	follow := func(ctx context.Context, show showFunc) error { return c.follow(ctx, name, ask, show) }
	var err error
	if s.terminal() && !o.Structured() {
		err = s.live(ctx, o, follow)
	} else {
		err = s.lines(ctx, name, o, follow)
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the rollout of SidecarSet %s has not ended after %s", name, w.timeout)
	case ctx.Err() != nil:
		return errInterrupted
	}
	return err
}

// errInterrupted ends a watch that somebody left.
var errInterrupted = errors.New("interrupted; the rollout goes on")

// lines prints each change.
func (s *shared) lines(ctx context.Context, name string, o output.Flag, follow followFunc) error {
	last := ""
	err := follow(ctx, func(model *view.Rollout) error {
		line := model.Line()
		if line == last {
			return nil
		}
		last = line
		if o.Structured() {
			return s.print(o, model)
		}
		_, err := fmt.Fprintln(s.Out, line)
		return err
	})
	if err == nil && !o.Structured() {
		_, err = fmt.Fprintf(s.Out, "sidecarset/%s: rollout ended\n", name)
	}
	return err
}

// follow shows a model whenever something has changed, until the rollout ends.
func (c *cluster) follow(ctx context.Context, name string, ask look, show showFunc) error {
	for {
		set, err := c.set(ctx, name)
		if err != nil {
			return err
		}
		if err := c.followScope(ctx, set, ask, show); !errors.Is(err, errScopeChanged) {
			return err
		}
	}
}

// errScopeChanged says that other pods have to be watched.
var errScopeChanged = errors.New("the set selects other pods now")

// followScope watches the pods that a set selects.
func (c *cluster) followScope(ctx context.Context, from *v1alpha1.SidecarSet, ask look, show showFunc) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cached, changed, err := c.watched(ctx, from, cancel)
	if err != nil {
		return err
	}
	timer := time.NewTicker(askInterval)
	defer timer.Stop()
	var run view.RunInput
	var asked time.Time
	for {
		var set v1alpha1.SidecarSet
		if err := cached.Get(ctx, client.ObjectKeyFromObject(from), &set); err != nil {
			return watchError(ctx, from, err)
		}
		if set.Spec.Namespace != from.Spec.Namespace || !equality.Semantic.DeepEqual(set.Spec.Selector, from.Spec.Selector) {
			return errScopeChanged
		}
		if time.Since(asked) >= askInterval {
			run, asked = ask(ctx, &set), time.Now()
		}
		model, err := cached.rolloutOf(ctx, &set, run)
		if err != nil {
			return watchError(ctx, from, err)
		}
		if err := show(model); err != nil {
			return err
		}
		if done, err := model.Done(); done {
			return err
		}
		if err := awaitChange(ctx, changed, timer.C); err != nil {
			return watchError(ctx, from, err)
		}
	}
}

// awaitChange waits for a change, and a little longer for those that come with it.
func awaitChange(ctx context.Context, changed <-chan struct{}, asked <-chan time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-changed:
	case <-asked:
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(showInterval):
		return nil
	}
}

// watchError prefers what ended the watch.
func watchError(ctx context.Context, set *v1alpha1.SidecarSet, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("SidecarSet %s was deleted", set.Name)
	}
	return err
}

// watched returns a cluster that reads from a cache of what concerns a set. A watch that
// is not allowed ends the context.
func (c *cluster) watched(ctx context.Context, set *v1alpha1.SidecarSet, cancel context.CancelCauseFunc) (*cluster, <-chan struct{}, error) {
	informers, err := c.cacheOf(set, cancel)
	if err != nil {
		return nil, nil, err
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
		if err != nil {
			return nil, nil, explain(err, "watch SidecarSet "+set.Name)
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, nil, fmt.Errorf("watch SidecarSet %s: %w", set.Name, err)
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

func (c *cluster) cacheOf(set *v1alpha1.SidecarSet, cancel context.CancelCauseFunc) (cache.Cache, error) {
	scope, err := match.NewScope(&set.Spec)
	if err != nil {
		return nil, fmt.Errorf("SidecarSet %s: %w", set.Name, err)
	}
	pods := cache.ByObject{Label: scope.PodSelector()}
	if namespace := scope.OneNamespace(); namespace != "" {
		pods.Namespaces = map[string]cache.Config{namespace: {}}
	}
	ofSet := labels.SelectorFromSet(labels.Set{v1alpha1.SidecarSetNameLabel: set.Name})
	informers, err := cache.New(c.config, cache.Options{
		Scheme:           c.scheme,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.SidecarSet{}:       {Field: fields.OneTermEqualSelector("metadata.name", set.Name)},
			&corev1.Pod{}:                pods,
			&appsv1.ControllerRevision{}: {Namespaces: map[string]cache.Config{c.systemNamespace: {}}, Label: ofSet},
		},
		DefaultWatchErrorHandler: func(ctx context.Context, reflector *toolscache.Reflector, err error) {
			if apierrors.IsForbidden(err) {
				cancel(explain(err, "watch SidecarSet "+set.Name))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch SidecarSet %s: %w", set.Name, err)
	}
	return informers, nil
}
