package workflows

import (
	"context"
	"errors"
	"sync"

	"github.com/stretchr/testify/suite"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/protocol"
)

// simulation simulates a cluster: NextBatch returns results from a script, and the simulation records the
// actions of the run.
type simulation struct {
	suite.Suite
	testsuite.WorkflowTestSuite
	env   *testsuite.TestWorkflowEnvironment
	turns turns

	script  []func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error)
	upgrade func(context.Context, protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error)
	asked   []protocol.NextBatchInput
	written []protocol.UpgradeBatchInput
}

func (s *simulation) SetupTest() {
	s.env = s.NewTestWorkflowEnvironment()
	s.env.SetWorkerOptions(worker.Options{Interceptors: append(Interceptors(), s.turns.next())})
	s.script, s.asked, s.written = nil, nil, nil
	s.upgrade = func(_ context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
		return written(input.Pods), nil
	}
	s.env.RegisterWorkflowWithOptions(Rollout, workflow.RegisterOptions{Name: protocol.RolloutWorkflow})
	s.env.RegisterActivityWithOptions(s.nextBatch, activity.RegisterOptions{Name: protocol.NextBatchActivity})
	s.env.RegisterActivityWithOptions(s.upgradeBatch, activity.RegisterOptions{Name: protocol.UpgradeBatchActivity})
}

func (s *simulation) nextBatch(ctx context.Context, input protocol.NextBatchInput) (protocol.NextBatchResult, error) {
	s.asked = append(s.asked, input)
	s.Require().NotEmpty(s.script, "the run asked for more than it should")
	answer := s.script[0]
	s.script = s.script[1:]
	return answer(ctx, input)
}

func (s *simulation) upgradeBatch(ctx context.Context, input protocol.UpgradeBatchInput) (protocol.UpgradeBatchResult, error) {
	s.written = append(s.written, input)
	return s.upgrade(ctx, input)
}

func written(pods []protocol.SelectedPod) protocol.UpgradeBatchResult {
	var result protocol.UpgradeBatchResult
	for _, pod := range pods {
		result.Written = append(result.Written, protocol.WrittenPod{PodReference: pod.PodReference, ResourceVersion: "2"})
	}
	return result
}

func (s *simulation) answers(results ...protocol.NextBatchResult) {
	for _, result := range results {
		s.script = append(s.script, func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) { return result, nil })
	}
}

// waits adds a plan to the script that stays pending until the run cancels the activity.
func (s *simulation) waits() {
	s.script = append(s.script, func(context.Context, protocol.NextBatchInput) (protocol.NextBatchResult, error) {
		return protocol.NextBatchResult{}, activity.ErrResultPending
	})
}

func (s *simulation) run() protocol.RolloutResult {
	s.env.ExecuteWorkflow(protocol.RolloutWorkflow, input(1))
	s.Require().True(s.env.IsWorkflowCompleted())
	s.Require().NoError(s.env.GetWorkflowError())
	var result protocol.RolloutResult
	s.Require().NoError(s.env.GetWorkflowResult(&result))
	s.Empty(s.script, "the run ended before its script")
	return result
}

func input(generation int64) protocol.RolloutInput {
	return protocol.RolloutInput{SidecarSet: protocol.SetReference{Name: "logs", UID: "u1"}, Generation: generation}
}

func pod(name string) protocol.PodReference {
	return protocol.PodReference{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name)}
}

func batch(names ...string) protocol.NextBatchResult {
	result := protocol.NextBatchResult{Phase: protocol.PhaseProgressing}
	for _, name := range names {
		result.Pods = append(result.Pods, protocol.SelectedPod{PodReference: pod(name)})
	}
	return result
}

func ends(phase protocol.Phase) protocol.NextBatchResult {
	return protocol.NextBatchResult{Phase: phase, Message: "done"}
}

// turns executes the activities of a suite one at a time. The test environment executes each activity in a
// goroutine and does not wait for cancelled activities, so a cancelled activity may begin during the next test.
type turns struct {
	mu   sync.Mutex
	test int
}

// next returns the interceptor for the next test. After the call of next, activities of earlier tests fail.
func (t *turns) next() interceptor.WorkerInterceptor {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.test++
	return &turnTaking{turns: t, test: t.test}
}

type turnTaking struct {
	interceptor.WorkerInterceptorBase
	turns *turns
	test  int
}

func (t *turnTaking) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &turn{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, turnTaking: t}
}

type turn struct {
	interceptor.ActivityInboundInterceptorBase
	*turnTaking
}

func (t *turn) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if t.test != t.turns.test {
		return nil, errors.New("the test has ended")
	}
	return t.Next.ExecuteActivity(ctx, in)
}
