package worker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// lock is a Lease in memory. answer runs before each write, and may delay or reject the write.
type lock struct {
	resourcelock.Interface
	identity string
	mu       sync.Mutex
	record   *resourcelock.LeaderElectionRecord
	answer   func() error
}

func (l *lock) Identity() string { return l.identity }
func (l *lock) Describe() string { return "kruise-system/outrigger-worker" }

func (l *lock) RecordEvent(string) {}

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "outrigger-worker")
	}
	record := *l.record
	return &record, []byte(record.RenewTime.String() + record.HolderIdentity), nil
}

func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *lock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answer != nil {
		if err := l.answer(); err != nil {
			return err
		}
	}
	l.record = &record
	return nil
}

func (l *lock) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return ""
	}
	return l.record.HolderIdentity
}

func TestALeaseIsValidFromTheStartOfItsRenewal(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	server := &lock{identity: "me"}
	l := &leadership{Interface: server, clock: clock}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	assert.False(t, l.held())
	require.NoError(t, l.Update(t.Context(), mine))
	assert.True(t, l.held())
	clock.Step(renewDeadline)
	assert.False(t, l.held(), "nobody renewed it")

	// The process was suspended between the request and the response.
	server.answer = func() error {
		clock.Step(renewDeadline)
		return nil
	}
	require.NoError(t, l.Update(t.Context(), mine))
	assert.False(t, l.held())

	server.answer = nil
	require.NoError(t, l.Update(t.Context(), mine))
	server.answer = func() error { return errors.New("conflict") }
	require.Error(t, l.Update(t.Context(), mine))
	assert.True(t, l.held(), "another worker may just have updated it")
	server.record = &resourcelock.LeaderElectionRecord{HolderIdentity: "other"}
	_, _, err := l.Get(t.Context())
	require.NoError(t, err)
	assert.False(t, l.held(), "another has it")

	server.answer, l.lost = nil, false
	require.NoError(t, l.Update(t.Context(), mine))
	server.answer = func() error {
		assert.False(t, l.held(), "it is released")
		return nil
	}
	l.end()
	require.NoError(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{}))
}

// The elector releases the Lease after failed renewals, although requests of lead may be in flight. The next
// leader must wait until the Lease expires.
func TestTheLeaseIsNotReleasedWhileTheWorkerLeads(t *testing.T) {
	server := &lock{identity: "me"}
	l := &leadership{Interface: server, clock: clock.RealClock{}}
	l.begin()
	require.NoError(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}))
	require.ErrorIs(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{}), errLeading)
	assert.Equal(t, "me", server.holder())
	assert.False(t, l.held(), "the worker no longer writes pods")
}

// A user may have deleted the Lease of a worker that still writes.
func TestAWorkerThatCreatesTheLeaseWaitsForThePreviousLeader(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	l := &leadership{Interface: &lock{identity: "me"}, clock: clock}
	require.NoError(t, l.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}))
	waited := make(chan error, 1)
	go func() { waited <- l.waitForOthers(t.Context()) }()
	require.Eventually(t, clock.HasWaiters, 10*time.Second, time.Millisecond)
	assert.Empty(t, waited)
	clock.Step(renewDeadline)
	require.NoError(t, <-waited)
}

func TestTheLeaseIsReleasedOnceNothingIsWrittenAnyMore(t *testing.T) {
	server := &lock{identity: "me"}
	l := &leadership{Interface: server, clock: clock.RealClock{}}
	ctx, stop := context.WithCancel(t.Context())
	leading, stopped, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- l.run(ctx, func(term context.Context) {
			close(leading)
			<-term.Done()
			assert.Equal(t, "me", server.holder())
			<-stopped
			assert.Equal(t, "me", server.holder())
		})
	}()
	<-leading
	stop()
	close(stopped)
	require.NoError(t, <-ended)
	assert.Empty(t, server.holder())
}

func TestACandidateEndsWithoutHavingLed(t *testing.T) {
	server := &lock{identity: "me", record: &resourcelock.LeaderElectionRecord{HolderIdentity: "other", LeaseDurationSeconds: 15}}
	l := &leadership{Interface: server, clock: clock.RealClock{}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.run(ctx, func(context.Context) { assert.Fail(t, "it does not lead") }) }()
	stop()
	require.NoError(t, <-ended)
	assert.Equal(t, "other", server.holder())
}

// The worker was suspended for longer than leaseDuration, and another worker has become the leader meanwhile.
func TestALostLeaseIsNeitherReleasedNorRenewed(t *testing.T) {
	server := &lock{identity: "me"}
	l := &leadership{Interface: server, clock: clock.RealClock{}}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	require.NoError(t, l.Update(t.Context(), mine))
	for _, holder := range []string{"other", ""} {
		server.record = &resourcelock.LeaderElectionRecord{HolderIdentity: holder}
		_, _, err := l.Get(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{}), errLost)
		require.ErrorIs(t, l.Update(t.Context(), mine), errLost)
		assert.Equal(t, holder, server.holder())
		assert.False(t, l.held())
	}

	l.begin()
	_, _, err := l.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Update(t.Context(), mine), "a new term")
	assert.True(t, l.held())
}

// The last renewal arrives between the read and the release of the Lease.
func TestAReleaseThatConflictsWithTheLastRenewalIsRepeated(t *testing.T) {
	conflicts := 1
	server := &lock{identity: "me"}
	l := &leadership{Interface: server, clock: clock.RealClock{}}
	require.NoError(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}))
	l.end()
	server.answer = func() error {
		if conflicts--; conflicts < 0 {
			return nil
		}
		return apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "outrigger-worker", nil)
	}
	released := resourcelock.LeaderElectionRecord{}
	require.True(t, apierrors.IsConflict(l.Update(t.Context(), released)))
	_, _, err := l.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Update(t.Context(), released))
	assert.Empty(t, server.holder())

	server.record = &resourcelock.LeaderElectionRecord{HolderIdentity: "other"}
	_, _, err = l.Get(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, l.Update(t.Context(), released), errLost, "another worker leads")
}

// At the end of the previous term, the worker could neither renew nor read the Lease.
func TestAWorkerLeadsAgainAfterATermThatItLostUnnoticed(t *testing.T) {
	server := &lock{identity: "me"}
	l := &leadership{Interface: server, clock: clock.RealClock{}}
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
	require.NoError(t, l.Update(t.Context(), mine))
	l.begin()
	for _, holder := range []string{"other", ""} {
		server.record = &resourcelock.LeaderElectionRecord{HolderIdentity: holder}
		_, _, err := l.Get(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, l.Update(t.Context(), mine))
	assert.True(t, l.held())
}

// Another worker acquires the Lease during the term. At the end of the term, this worker must not release the
// Lease.
func TestTheEndOfALostTermKeepsTheLeaseOfTheSuccessor(t *testing.T) {
	server := &lock{identity: "me"}
	l := &leadership{Interface: server, clock: clock.RealClock{}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- l.run(ctx, func(context.Context) {
			server.mu.Lock()
			server.record = &resourcelock.LeaderElectionRecord{HolderIdentity: "other", LeaseDurationSeconds: 15}
			server.mu.Unlock()
			stop()
		})
	}()
	require.NoError(t, <-ended)
	assert.Equal(t, "other", server.holder())
}
