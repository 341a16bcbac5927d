package workflows

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/suite"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	sdkworker "go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/eviction"
)

type evictionSuite struct {
	suite.Suite
	testsuite.WorkflowTestSuite
	env    *testsuite.TestWorkflowEnvironment
	begin  time.Time
	policy *outriggerv1.RolloutPolicy
	pods   map[types.UID]*simulatedPod
	made   int
	// startsAfter is the time until a new pod is ready.
	startsAfter time.Duration
	// permits reports whether the PodDisruptionBudget of owner permits an eviction at the time since after
	// the start.
	permits func(owner string, since time.Duration) bool
	// broken is set while the webhook does not inject.
	broken bool
	// mostUnready is the highest number of pods of one owner that were not ready at once.
	mostUnready int
	rejected    int
	ended       bool
}

type simulatedPod struct {
	*corev1.Pod
	owner    string
	outdated bool
	readyAt  time.Time
}

func TestEviction(t *testing.T) { suite.Run(t, new(evictionSuite)) }

func (s *evictionSuite) SetupTest() {
	s.newEnvironment()
	s.policy = &outriggerv1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "p", Generation: 1}, Spec: outriggerv1.RolloutPolicySpec{
		NotUpgradable: &outriggerv1.RolloutNotUpgradable{Action: outriggerv1.EvictNotUpgradable, Deadline: "14d"}}}
	s.pods, s.made, s.startsAfter, s.broken, s.mostUnready, s.rejected, s.ended = map[types.UID]*simulatedPod{}, 0, 20*time.Second, false, 0, 0, false
	s.permits = func(string, time.Duration) bool { return true }
	s.begin = s.env.Now().UTC()
}

func (s *evictionSuite) newEnvironment() {
	s.env = s.NewTestWorkflowEnvironment()
	s.env.SetStartTime(time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC))
	s.env.SetTestTimeout(time.Minute)
	s.env.SetWorkerOptions(sdkworker.Options{Interceptors: Interceptors()})
	s.env.RegisterWorkflowWithOptions(Eviction, workflow.RegisterOptions{Name: protocol.EvictionWorkflow})
	s.env.RegisterActivityWithOptions(s.plan, activity.RegisterOptions{Name: protocol.PlanEvictionsActivity})
	s.env.RegisterActivityWithOptions(s.evict, activity.RegisterOptions{Name: protocol.EvictPodsActivity})
}

func (s *evictionSuite) add(owner string, outdated bool, readyAt time.Time) {
	s.made++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: fmt.Sprintf("%s-%d", owner, s.made), UID: types.UID(fmt.Sprint("pod", s.made)), CreationTimestamp: metav1.NewTime(s.env.Now().Truncate(time.Second)),
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: owner, UID: types.UID(owner), Controller: new(true)}},
	}}
	s.pods[pod.UID] = &simulatedPod{pod, owner, outdated, readyAt}
}

func (s *evictionSuite) plan(_ context.Context, input protocol.PlanEvictionsInput) (protocol.EvictionPlan, error) {
	if s.ended {
		return protocol.EvictionPlan{Ended: true, Message: "the policy is gone"}, nil
	}
	in := eviction.Input{State: input.State, Policy: s.policy, Now: input.Now, Sets: map[string]eviction.Set{"logs": {UID: "s", Generation: 1, MaxUnavailable: 50}}}
	unready := map[string]int{}
	for _, pod := range s.pods {
		p := eviction.Pod{Pod: pod.Pod, Ready: !s.env.Now().Before(pod.readyAt)}
		if pod.outdated {
			p.Outdated = []string{"logs"}
		}
		if !p.Ready {
			unready[pod.owner]++
			s.mostUnready = max(s.mostUnready, unready[pod.owner])
		}
		in.Pods = append(in.Pods, p)
	}
	return eviction.Next(in), nil
}

func (s *evictionSuite) evict(_ context.Context, input protocol.EvictPodsInput) (result protocol.EvictPodsResult, err error) {
	for _, e := range input.Evictions {
		for _, pod := range e.Pods {
			if !s.permits(e.Owner.Name, s.env.Now().Sub(s.begin)) {
				s.rejected++
				result.Rejected = append(result.Rejected, protocol.RejectedPod{PodReference: pod.PodReference, Reason: "The disruption budget needs 3 healthy pods and has 3 currently"})
				continue
			}
			s.Require().Contains(s.pods, pod.UID)
			delete(s.pods, pod.UID)
			result.Evicted = append(result.Evicted, pod.UID)
			s.add(e.Owner.Name, s.broken, s.env.Now().Add(s.startsAfter))
		}
	}
	return result, nil
}

func (s *evictionSuite) outdated() (n int) {
	for _, pod := range s.pods {
		if pod.outdated {
			n++
		}
	}
	return n
}

func (s *evictionSuite) view() (view protocol.EvictionView) {
	answer, err := s.env.QueryWorkflow(protocol.StatusQuery)
	s.Require().NoError(err)
	s.Require().NoError(answer.Get(&view))
	return view
}

// endAfter deletes the policy at the time d after the start.
func (s *evictionSuite) endAfter(d time.Duration) {
	s.env.RegisterDelayedCallback(func() { s.ended = true }, d)
}

func (s *evictionSuite) execute() {
	s.env.ExecuteWorkflow(protocol.EvictionWorkflow, protocol.EvictionInput{Policy: protocol.PolicyReference{Name: "edge", UID: "p"}})
	s.Require().True(s.env.IsWorkflowCompleted())
	s.Require().NoError(s.env.GetWorkflowError())
}

// The test has 1,000 pods of 100 owners. Each PodDisruptionBudget permits evictions for two hours a
// day. Ten of the PodDisruptionBudgets permit no eviction in the first week.
func (s *evictionSuite) TestSpec13_4_AThousandPodsConvergeBeforeTheDeadline() {
	for i := range 1000 {
		s.add(fmt.Sprintf("owner%02d", i%100), true, s.begin)
	}
	s.permits = func(owner string, since time.Duration) bool {
		return since%(24*time.Hour) < 2*time.Hour && (owner < "owner90" || since > 7*24*time.Hour)
	}
	s.env.RegisterDelayedCallback(func() {
		view := s.view()
		s.Equal(100, view.Remaining)
		s.Equal(900, view.Evicted)
		s.Contains(view.Message, "100 pods have to be recreated")
		s.Contains(view.Message, "evictions were rejected, such as shop/owner9")
		s.Contains(view.Message, "The disruption budget needs 3 healthy pods and has 3 currently")
	}, 6*24*time.Hour)
	s.env.RegisterDelayedCallback(func() {
		view := s.view()
		s.Zero(s.outdated())
		s.Equal(protocol.EvictionView{Message: "no pod has to be recreated", Evicted: 1000, PauseChanged: s.begin}, view)
	}, 13*24*time.Hour)
	s.endAfter(14 * 24 * time.Hour)
	s.execute()
	s.Equal(1, s.mostUnready)
	s.Greater(s.rejected, 1000)
}

func (s *evictionSuite) TestSpec13_4_AfterTheDeadlineTheEvictionsContinue() {
	s.add("a", true, s.begin)
	s.permits = func(_ string, since time.Duration) bool { return since > 20*24*time.Hour }
	s.env.RegisterDelayedCallback(func() {
		s.True(s.view().Overdue)
		s.Contains(s.view().Message, "the deadline 14d has passed")
	}, 15*24*time.Hour)
	s.env.RegisterDelayedCallback(func() {
		s.Zero(s.outdated())
		s.False(s.view().Overdue)
	}, 21*24*time.Hour)
	s.endAfter(22 * 24 * time.Hour)
	s.execute()
}

func (s *evictionSuite) TestSpec13_3_ABrokenWebhookCostsOnePodUntilAResume() {
	for i := range 100 {
		s.add(fmt.Sprintf("owner%02d", i%10), true, s.begin)
	}
	s.broken = true
	s.env.RegisterDelayedCallback(func() {
		view := s.view()
		s.Equal(1, view.Evicted)
		s.Require().Len(view.Failed, 1)
		s.Equal("owner00", view.Failed[0].Name)
		s.Contains(view.Message, "evictions for SidecarSet logs are halted")
		s.broken = false
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	}, 24*time.Hour)
	s.env.RegisterDelayedCallback(func() {
		s.Zero(s.outdated())
		s.Equal(101, s.view().Evicted)
	}, 48*time.Hour)
	s.endAfter(49 * time.Hour)
	s.execute()
}

func (s *evictionSuite) TestSpec13_5_APauseStopsEvictionsUntilTheResume() {
	for range 10 {
		s.add("a", true, s.begin)
	}
	var evicted int
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann", Reason: "lunch"})
		evicted = s.made
	}, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.Equal(evicted, s.made)
		s.Contains(s.view().Message, "paused by signal from ann: lunch; ")
		s.Equal(s.begin.Add(time.Minute), s.view().Pause.At)
		s.Equal(s.begin.Add(time.Minute), s.view().PauseChanged)
		s.NotZero(s.outdated())
		s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "ann"})
	}, 24*time.Hour)
	s.endAfter(25 * time.Hour)
	s.env.RegisterDelayedCallback(func() { s.Equal(s.begin.Add(24*time.Hour), s.view().PauseChanged) }, 24*time.Hour+time.Minute)
	s.execute()
	s.Zero(s.outdated())
}

// The operator compares the time of the last resume in the memo with the time of the pause in status.
func (s *evictionSuite) TestSpec13_5_TheMemoShowsAResumeWithoutAPause() {
	var shown []time.Time
	s.env.OnUpsertMemo(mock.Anything).Run(func(args mock.Arguments) {
		shown = append(shown, args.Get(0).(map[string]any)[protocol.EvictionMemo].(protocol.EvictionView).PauseChanged)
	}).Return(nil)
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.ResumeSignal, protocol.Pause{By: "ann"}) }, time.Minute)
	s.env.RegisterDelayedCallback(func() { s.Equal([]time.Time{s.begin, s.begin.Add(time.Minute)}, shown) }, 2*time.Minute)
	s.endAfter(time.Hour)
	s.execute()
}

func (s *evictionSuite) TestSpec13_5_TheOperatorWakesTheRun() {
	s.env.RegisterDelayedCallback(func() { s.add("a", true, s.begin) }, time.Minute)
	s.env.RegisterDelayedCallback(func() { s.env.SignalWorkflow(protocol.WakeSignal, nil) }, 2*time.Minute)
	s.env.RegisterDelayedCallback(func() { s.Equal(1, s.view().Evicted) }, 3*time.Minute)
	s.endAfter(time.Hour)
	s.execute()
}

// A run that continues as new passes the pause and the evictions in flight to the next run.
func (s *evictionSuite) TestSpec13_5_AContinuedRunKeepsItsState() {
	for i := range 20 {
		s.add(fmt.Sprintf("owner%d", i%2), true, s.begin)
	}
	s.startsAfter = time.Hour
	s.env.RegisterDelayedCallback(func() { s.env.SetCurrentHistoryLength(longHistory) }, time.Minute)
	s.env.RegisterDelayedCallback(func() {
		s.env.SignalWorkflow(protocol.PauseSignal, protocol.Pause{By: "ann"})
	}, time.Minute)
	s.env.ExecuteWorkflow(protocol.EvictionWorkflow, protocol.EvictionInput{Policy: protocol.PolicyReference{Name: "edge", UID: "p"}})
	var continued *workflow.ContinueAsNewError
	s.Require().ErrorAs(s.env.GetWorkflowError(), &continued)
	var next protocol.EvictionInput
	s.Require().NoError(converter.GetDefaultDataConverter().FromPayloads(continued.Input, &next))
	s.Len(next.State.InFlight, 1)
	s.Equal("ann", next.View.Pause.By)
	s.Equal(next.View.Pause.At, next.View.PauseChanged)
	s.Equal(1, next.State.Evicted)
}
