package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/dev/bench/figures"
	"github.com/outrigger/outrigger/dev/bench/testbed"
	"github.com/outrigger/outrigger/dev/witness"
)

const (
	// namespace of all pods.
	namespace = "fleet"
	// parallel is how many requests a client has in flight.
	parallel = 8
)

// fleet is a number of SidecarSets, each with a Deployment of its own.
type fleet struct {
	*testbed.Testbed
	sets []*v1alpha1.SidecarSet
	pods int
	// idle is the number of sets beside them that have no pods.
	idle    int
	witness *witness.Witness
	runs    *runs
	// failed requests for sets.
	failed  atomic.Int64
	started time.Time
	// version of the image that the sets hold.
	version int
}

// startFleet starts a cluster and the roles on it, with nodes for so many pods.
func startFleet(ctx context.Context, pods, workers int, workerFlags ...string) (*fleet, error) {
	bed, err := testbed.Start(ctx, pods)
	if err != nil {
		return nil, err
	}
	f := &fleet{Testbed: bed, started: time.Now(), version: 1}
	if err := f.connect(ctx, workers, workerFlags); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *fleet) connect(ctx context.Context, workers int, workerFlags []string) (err error) {
	if err := f.StartRoles(ctx, workers, workerFlags...); err != nil {
		return err
	}
	if err := f.CreateNamespace(ctx, namespace); err != nil {
		return err
	}
	if f.runs, err = watchRuns(ctx, f.Testbed); err != nil {
		return err
	}
	f.witness, err = witness.Watch(ctx, f.Config, namespace, testbed.AppLabel, testbed.Sidecar)
	return err
}

// reached tells who waits how far the bench is.
func (f *fleet) reached(what string) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(f.started).Seconds(), what)
}

// image is what the sidecars run in a version.
func image(version int) string { return fmt.Sprintf("%s:v%d", testbed.Sidecar, version) }

// newSet is a set that selects the pods of the Deployment of its name.
func newSet(name string, maxUnavailable intstr.IntOrString) *v1alpha1.SidecarSet {
	set := &v1alpha1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{testbed.AppLabel: name}}
	set.Spec.Containers = []v1alpha1.SidecarContainer{{Container: corev1.Container{Name: testbed.Sidecar, Image: image(1)}}}
	set.Spec.UpdateStrategy.MaxUnavailable = &maxUnavailable
	return set
}

// newSets are sets named prefix-1 to prefix-n.
func newSets(prefix string, n int, maxUnavailable intstr.IntOrString) []*v1alpha1.SidecarSet {
	sets := make([]*v1alpha1.SidecarSet, 0, n)
	for i := range n {
		sets = append(sets, newSet(fmt.Sprintf("%s-%d", prefix, i+1), maxUnavailable))
	}
	return sets
}

// eachSet sends something to the API server for all sets, some at a time. What fails there,
// as checks do that an overloaded machine does not finish, is sent again, and counted.
func (f *fleet) eachSet(ctx context.Context, sets []*v1alpha1.SidecarSet, send func(context.Context, *v1alpha1.SidecarSet) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(parallel)
	for _, set := range sets {
		all.Go(func() error {
			err := retry.OnError(wait.Backoff{Duration: time.Second, Factor: 2, Steps: 5}, f.countFailed, func() error { return send(ctx, set) })
			if err != nil {
				return fmt.Errorf("SidecarSet %s: %w", set.Name, err)
			}
			return nil
		})
	}
	return all.Wait()
}

// countFailed reports whether the server could not do what it was asked to.
func (f *fleet) countFailed(err error) bool {
	var status apierrors.APIStatus
	failed := errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
	if failed {
		f.failed.Add(1)
	}
	return failed
}

// failedLine is a figure that every bench prints: a slow one may have been overloaded.
func (f *fleet) failedLine(lines *figures.Lines) {
	lines.Add("requests for sets that failed and were repeated", "%d", f.failed.Load())
}

// populate creates the sets and so many pods of each, and returns once these are ready
// and the sets' first runs have ended.
func (f *fleet) populate(ctx context.Context, sets []*v1alpha1.SidecarSet, podsEach int) error {
	f.sets, f.pods = sets, len(sets)*podsEach
	f.witness.Expect(image(f.version))
	err := f.eachSet(ctx, sets, func(ctx context.Context, set *v1alpha1.SidecarSet) error {
		return f.Kube.Create(ctx, set)
	})
	if err != nil {
		return err
	}
	if err := f.runs.awaitEnd(ctx, len(sets)); err != nil {
		return err
	}
	f.reached("SidecarSets are created")
	err = f.eachSet(ctx, sets, func(ctx context.Context, set *v1alpha1.SidecarSet) error {
		return f.CreateDeployment(ctx, namespace, set.Name, podsEach, testbed.PodTemplate())
	})
	if err != nil {
		return err
	}
	if _, err := f.witness.Await(ctx, witness.Settled(f.pods)); err != nil {
		return fmt.Errorf("wait for the pods: %w", err)
	}
	f.reached("pods are ready")
	return f.runs.awaitEnd(ctx, len(sets))
}

// changeImage begins a rollout of all sets, and returns when the first was changed.
func (f *fleet) changeImage(ctx context.Context) (time.Time, error) {
	f.version++
	f.witness.Expect(image(f.version))
	patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/containers/0/image","value":%q}]`, image(f.version))
	began := time.Now()
	return began, f.eachSet(ctx, f.sets, func(ctx context.Context, set *v1alpha1.SidecarSet) error {
		return f.Kube.Patch(ctx, set, client.RawPatch(types.JSONPatchType, patch))
	})
}

// rollOut changes the image of all sets and waits until all pods run it and the runs have
// ended. What was used is that until the pods ran it.
func (f *fleet) rollOut(ctx context.Context) (used figures.Sample, began time.Time, err error) {
	before, err := figures.Take(ctx, f.Stack)
	if err != nil {
		return used, began, err
	}
	if began, err = f.changeImage(ctx); err != nil {
		return used, began, err
	}
	if _, err := f.witness.Await(ctx, witness.Settled(f.pods)); err != nil {
		return used, began, err
	}
	took := time.Since(began)
	after, err := figures.Take(ctx, f.Stack)
	if err != nil {
		return used, began, err
	}
	used = after.Since(before)
	used.Took = took
	f.reached(image(f.version) + " is rolled out")
	return used, began, f.runs.awaitEnd(ctx, len(f.sets)+f.idle)
}
