package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
)

const (
	// lookTimeout bounds a question to Temporal that can also stay unanswered.
	lookTimeout = 3 * time.Second
	// updateTimeout bounds pause and resume, which somebody waits for.
	updateTimeout = 15 * time.Second
)

// runs are the rollouts in Temporal.
type runs struct {
	sdk.Client
	options temporal.Options
}

// connect does not talk to Temporal yet. The caller closes it.
func (s *shared) connect() (*runs, error) {
	options, err := s.temporal.Options(envconfig.EnvLookupOS)
	if err != nil {
		return nil, err
	}
	if options.Codec, err = codec.Open(s.keys.WithVariables(os.LookupEnv)); err != nil {
		return nil, err
	}
	options.Identity = temporal.Identity("kubectl", envconfig.EnvLookupOS)
	c, err := temporal.NewLazyClient(options, logr.Discard())
	if err != nil {
		return nil, err
	}
	return &runs{c, options}, nil
}

// elsewhere is the remedy for what is looked for in the wrong Temporal.
const elsewhere = "name it with --temporal-address and --temporal-namespace, or TEMPORAL_ADDRESS and TEMPORAL_NAMESPACE"

// where says where runs are looked for.
func (r *runs) where() string {
	return fmt.Sprintf("Temporal at %s, namespace %s", r.options.Address, r.options.Namespace)
}

// explain says where Temporal was looked for and, where it is known, what helps.
func (r *runs) explain(err error) error {
	where := r.where()
	if cause, remedy := temporal.Explain(err); cause != "" {
		return fmt.Errorf("%s: %s (%s)", where, cause, remedy)
	}
	if unanswered(err) {
		return fmt.Errorf("%s does not answer (name it with --temporal-address or TEMPORAL_ADDRESS)", where)
	}
	return fmt.Errorf("%s: %w", where, err)
}

func unanswered(err error) bool {
	var unavailable *serviceerror.Unavailable
	var late *serviceerror.DeadlineExceeded
	return errors.As(err, &unavailable) || errors.As(err, &late) || errors.Is(err, context.DeadlineExceeded)
}

// errNoWorker is a run that exists and does not answer.
var errNoWorker = errors.New("the run does not answer: is a worker running?")

// needsKeys is the remedy for payloads that are encrypted.
const needsKeys = "if the run is encrypted, name the keys with --temporal-payload-key-dir"

// look asks the open run of a set; nil if none is.
func (r *runs) look(ctx context.Context, set *v1alpha1.SidecarSet) (*protocol.RolloutStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	id := protocol.WorkflowID(set.Name, set.UID)
	described, err := r.DescribeWorkflowExecution(ctx, id, "")
	var none *serviceerror.NotFound
	if errors.As(err, &none) {
		return nil, nil
	}
	if err != nil {
		return nil, r.explain(err)
	}
	if described.WorkflowExecutionInfo.Status != enums.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, nil
	}
	answer, err := r.QueryWorkflow(ctx, id, "", protocol.StatusQuery)
	if errors.As(err, &none) {
		return nil, nil
	}
	if unanswered(err) {
		return nil, errNoWorker
	}
	if err != nil {
		return nil, r.explain(err)
	}
	var status protocol.RolloutStatus
	if err := answer.Get(&status); err != nil {
		return nil, fmt.Errorf("read the answer of run %s: %w; %s", id, err, needsKeys)
	}
	return &status, nil
}

// update sends pause or resume as a signal, and waits for the answer. Temporal keeps the
// order of signals, also of those whose senders did not wait for the answer.
func (r *runs) update(ctx context.Context, set *v1alpha1.SidecarSet, name string, hold protocol.Pause) (protocol.PauseResult, error) {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	var result protocol.PauseResult
	id := protocol.WorkflowID(set.Name, set.UID)
	if err := r.SignalWorkflow(ctx, id, "", name, hold); err != nil {
		return result, err
	}
	hold.Sent = true
	handle, err := r.UpdateWorkflow(ctx, sdk.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: name, Args: []any{hold}, WaitForStage: sdk.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, &result)
	}
	var none *serviceerror.NotFound
	switch {
	case errors.As(err, &none) && name == protocol.ResumeSignal:
		return protocol.PauseResult{Message: "resumed"}, nil // and nothing was left to do
	case unanswered(err):
		return result, errUnread
	}
	return result, err
}

// errUnread is a pause or resume that Temporal keeps for the run.
var errUnread = errors.New("the run has not answered yet (is a worker running?); it follows as soon as one does")
