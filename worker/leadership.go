package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// The times of Kubernetes' own components. Whoever leads writes for renewDeadline
// after a renewal was sent; another takes over leaseDuration after the renewal at
// the earliest, so what was on the wire has arrived by then.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
	leaseName     = "outrigger-worker"
)

// leadership is the Lease of the worker that upgrades pods.
type leadership struct {
	resourcelock.Interface
	clock clock.Clock

	mu sync.Mutex
	// renewed is when the newest renewal that succeeded was sent, zero without.
	renewed time.Time
	// from is when writing may begin.
	from time.Time
}

// newLeadership names the process like its client of Temporal.
func newLeadership(config *rest.Config, namespace, identity string) (*leadership, error) {
	// One call that hangs must leave time for another.
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

// held reports whether this process may write. No other may then, by a clock
// that goes on while the process is frozen.
func (l *leadership) held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.renewed.IsZero() && l.clock.Since(l.renewed) < renewDeadline
}

// Get notices when somebody else holds the Lease.
func (l *leadership) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() {
		l.lose()
	}
	return record, raw, err
}

// Create waits before this process writes: somebody may have deleted the Lease of
// one that still does.
func (l *leadership) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	sent := l.clock.Now()
	if err := l.Interface.Create(ctx, record); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed, l.from = sent, sent.Add(renewDeadline)
	return nil
}

// Update renews the Lease, or gives it back.
func (l *leadership) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != l.Identity() {
		l.lose()
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
	l.renewed = time.Time{}
}

// settled waits until whoever may have led before writes no more.
func (l *leadership) settled(ctx context.Context) error {
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

// run has lead called whenever this process leads, until ctx ends. The context of
// lead ends with the leadership; the Lease is given back once lead has returned.
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

func (l *leadership) campaign(ctx context.Context, lead func(context.Context)) error {
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var leading sync.WaitGroup
	var mu sync.Mutex
	led, over := false, false
	// begin reports whether the campaign goes on, with a leader.
	begin := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			led = true
			leading.Add(1)
		}
		return !over
	}
	defer context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		if over = true; !led {
			release()
		}
	})()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) {
				if !begin() {
					return
				}
				defer leading.Done()
				term, end := context.WithCancel(term)
				defer end()
				defer context.AfterFunc(ctx, end)()
				lead(term)
				release()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("set up the election of a worker: %w", err)
	}
	elector.Run(electing)
	mu.Lock()
	over = true
	mu.Unlock()
	leading.Wait()
	return nil
}

var errNotHeld = errors.New("this worker does not lead: pods are left alone")

// fence refuses patches while the Lease is not held. It stands behind whatever may
// hold a request up, so that no process writes that was frozen meanwhile.
func (l *leadership) fence(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodPatch && !l.held() {
			if request.Body != nil {
				_ = request.Body.Close()
			}
			return nil, errNotHeld
		}
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// writer is a client that patches only while the Lease is held.
func (l *leadership) writer(mgr manager.Manager) (client.Client, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.WrapTransport = transport.Wrappers(l.fence, config.WrapTransport)
	writer, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("set up a client that writes pods: %w", err)
	}
	return writer, nil
}
