package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
)

// The components of Kubernetes use the same durations by default. The leader writes pods for at most
// renewDeadline after the leader sent the last successful renewal. Another worker takes over at the earliest
// leaseDuration after this renewal. The difference is the time for the last requests of the old leader to arrive.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	leaseName     = "outrigger-worker"
)

// leadership manages the Lease of the worker that leads.
type leadership struct {
	resourcelock.Interface
	clock clock.Clock

	mu sync.Mutex
	// renewed is the time at which the last successful renewal was sent. While this worker does not lead,
	// renewed is zero.
	renewed time.Time
	// from is the time at which this worker may start to write.
	from time.Time
	// lost is set when the leadership of this term ends: this worker has released the Lease, or the Lease has
	// another holder. Another worker may have led since then. Therefore, this worker writes the Lease again
	// only in a new term.
	lost bool
	// releasing is set once this worker, as the holder, has tried to release the Lease. Update then permits
	// further attempts, because the elector retries a release that conflicts with the last renewal.
	releasing bool
	// ended is set once lead has returned. Until then, requests of this worker may be in flight.
	ended bool
}

var (
	// errLost is the error of a write of the Lease after the leadership of the term has ended.
	errLost = errors.New("another worker has led since")
	// errLeading is the error of a release of the Lease before lead has returned.
	errLeading = errors.New("requests of this worker may be in flight, so the Lease expires")
)

// newLeadership returns the leadership of this worker. identity identifies the pod. A random suffix makes the
// holder unique for each process.
func newLeadership(config *rest.Config, namespace, identity string) (*leadership, error) {
	// The timeout leaves time for a second call before renewDeadline if the first call receives no response.
	config = rest.CopyConfig(config)
	config.Timeout = renewDeadline / 2
	leases, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up a client of Leases: %w", err)
	}
	return &leadership{clock: clock.RealClock{}, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity + "_" + string(uuid.NewUUID())},
	}}, nil
}

// held reports whether this process may write pods. At most one process may write at a time. The monotonic clock also
// advances while the process is suspended, so that held returns false after a long suspension. The clock stops while
// the virtual machine of the process is paused (docs/limits.md).
func (l *leadership) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero() && l.clock.Since(l.renewed) < renewDeadline
}

// Get reads the Lease. If another worker is the holder, this worker stops leading.
func (l *leadership) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() {
		l.lose()
		l.setReleasing(false)
	}
	return record, raw, err
}

// Create creates the Lease, and delays the writes of this process by renewDeadline, because a user may have
// deleted the Lease while another worker leads and writes.
func (l *leadership) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.isLost() {
		return errLost
	}
	sent := l.clock.Now()
	if err := l.Interface.Create(ctx, record); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed, l.from = sent, sent.Add(renewDeadline)
	return nil
}

// Update renews or releases the Lease. If the leadership of the term has ended, Update returns errLost.
// Otherwise, a worker that continues after a long suspension could release the Lease of the next leader.
// Update returns errLeading for a release before lead has returned, which the elector attempts after failed
// renewals. The Lease then expires, so that the next leader waits for the last requests of this worker.
func (l *leadership) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	release := record.HolderIdentity != l.Identity()
	if l.isLost() && (!release || !l.isReleasing()) {
		return errLost
	}
	if release {
		l.lose()
		if !l.hasEnded() {
			return errLeading
		}
		l.setReleasing(true)
		return l.Interface.Update(ctx, record)
	}
	sent := l.clock.Now()
	if err := l.Interface.Update(ctx, record); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = sent
	return nil
}

func (l *leadership) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = l.lost || !l.renewed.IsZero()
	l.renewed = time.Time{}
}

func (l *leadership) isLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

func (l *leadership) isReleasing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.releasing
}

func (l *leadership) setReleasing(releasing bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releasing = releasing
}

func (l *leadership) hasEnded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// end permits the release of the Lease.
func (l *leadership) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// begin resets the state for a new term.
func (l *leadership) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost, l.releasing, l.ended, l.renewed = false, false, false, time.Time{}
}

// waitForOthers waits until a previous leader must have stopped writing. waitForOthers returns an error if
// ctx ends before that.
func (l *leadership) waitForOthers(ctx context.Context) error {
	l.mu.Lock()
	wait := l.from.Sub(l.clock.Now())
	l.mu.Unlock()
	select {
	case <-l.clock.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run takes part in elections until ctx ends, and calls lead whenever this process becomes the leader. The
// context of lead ends with the leadership. The Lease is released once lead has returned.
func (l *leadership) run(ctx context.Context, lead func(context.Context)) error {
	for ctx.Err() == nil {
		if err := l.campaign(ctx, lead); err != nil {
			return err
		}
		select {
		case <-l.clock.After(retryPeriod):
		case <-ctx.Done():
		}
	}
	return nil
}

// campaign takes part in one election. campaign returns once this process has led and released the Lease, or
// once ctx ends.
func (l *leadership) campaign(ctx context.Context, lead func(context.Context)) error {
	l.begin()
	started := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) { started <- term },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("set up the election of a worker: %w", err)
	}
	// The elector renews the Lease until lead has returned, even after ctx has ended, because lead may still
	// write pods.
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	var election sync.WaitGroup
	election.Go(func() { elector.Run(electing) })
	defer election.Wait()
	defer release()
	select {
	case term := <-started:
		term, end := context.WithCancel(term)
		defer end()
		defer context.AfterFunc(ctx, end)()
		if ctx.Err() == nil {
			lead(term)
		}
	case <-ctx.Done():
	}
	l.end()
	return nil
}
