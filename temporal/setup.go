package temporal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// callTimeout limits each call of a command.
	callTimeout = 10 * time.Second
	// A new namespace is visible to all parts of Temporal within namespaceTimeout. Until then, calls are
	// retried every namespaceInterval.
	namespaceTimeout  = time.Minute
	namespaceInterval = 250 * time.Millisecond
)

// SearchAttributes returns the search attributes of runs, with their types. The namespace needs all these
// search attributes.
func SearchAttributes() map[string]enums.IndexedValueType {
	return map[string]enums.IndexedValueType{
		protocol.SidecarSetAttribute:   enums.INDEXED_VALUE_TYPE_KEYWORD,
		protocol.GenerationAttribute:   enums.INDEXED_VALUE_TYPE_INT,
		protocol.RolloutPhaseAttribute: enums.INDEXED_VALUE_TYPE_KEYWORD,
	}
}

// Setup creates the namespace and its search attributes if they are missing. With DryRun, Setup only prints
// the changes.
type Setup struct {
	Client    client.Client
	Namespace string
	// Retention is the retention of completed runs. The retention of an existing namespace does not change.
	Retention time.Duration
	DryRun    bool
	// Out receives a line for each namespace or search attribute that was found or created.
	Out io.Writer
}

// Run executes the setup. Run is idempotent. Run fails if an existing search attribute has another type.
func (s *Setup) Run(ctx context.Context) error {
	created, err := s.namespace(ctx)
	if err != nil {
		return err
	}
	if created && s.DryRun {
		return s.add(ctx, SearchAttributes())
	}
	known, err := s.known(ctx)
	if err != nil {
		return fmt.Errorf("list the search attributes of namespace %s: %w; %s", s.Namespace, Explained(err), s.cloud())
	}
	missing := SearchAttributes()
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		found, ok := known[name]
		if !ok {
			continue
		}
		if found != missing[name] {
			return fmt.Errorf("search attribute %s of namespace %s is of type %s, not %s: remove it, or use another namespace", name, s.Namespace, found, missing[name])
		}
		say(s.Out, "search attribute %s exists", name)
		delete(missing, name)
	}
	return s.add(ctx, missing)
}

// namespace creates the namespace if the namespace is missing. created is true if the namespace was created,
// or would be created without DryRun.
func (s *Setup) namespace(ctx context.Context) (created bool, err error) {
	service := s.Client.WorkflowService()
	found, err := call(ctx, service.DescribeNamespace, &workflowservice.DescribeNamespaceRequest{Namespace: s.Namespace})
	if err == nil {
		say(s.Out, "namespace %s exists, retention %s", s.Namespace, found.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration())
		return false, nil
	}
	var absent *serviceerror.NamespaceNotFound
	if !errors.As(err, &absent) {
		return false, fmt.Errorf("look for namespace %s: %w", s.Namespace, Explained(err))
	}
	if s.DryRun {
		say(s.Out, "would create namespace %s, retention %s", s.Namespace, s.Retention)
		return true, nil
	}
	_, err = call(ctx, service.RegisterNamespace, &workflowservice.RegisterNamespaceRequest{
		Namespace: s.Namespace, Description: "Rollouts of Outrigger", WorkflowExecutionRetentionPeriod: durationpb.New(s.Retention),
	})
	var exists *serviceerror.NamespaceAlreadyExists
	if err != nil && !errors.As(err, &exists) {
		return false, fmt.Errorf("create namespace %s: %w; on Temporal Cloud, use tcld, see docs/temporal.md", s.Namespace, Explained(err))
	}
	say(s.Out, "created namespace %s, retention %s", s.Namespace, s.Retention)
	return true, nil
}

// known returns the registered search attributes. If the namespace is new, known waits until the search
// attributes can be listed.
func (s *Setup) known(ctx context.Context) (known map[string]enums.IndexedValueType, err error) {
	err = retryWhileNew(ctx, func(ctx context.Context) error {
		answer, err := call(ctx, s.Client.OperatorService().ListSearchAttributes, &operatorservice.ListSearchAttributesRequest{Namespace: s.Namespace})
		known = answer.GetCustomAttributes()
		return err
	})
	return known, err
}

func (s *Setup) add(ctx context.Context, missing map[string]enums.IndexedValueType) error {
	if len(missing) == 0 {
		return nil
	}
	if !s.DryRun {
		err := retryWhileNew(ctx, func(ctx context.Context) error {
			_, err := call(ctx, s.Client.OperatorService().AddSearchAttributes, &operatorservice.AddSearchAttributesRequest{Namespace: s.Namespace, SearchAttributes: missing})
			return err
		})
		var exists *serviceerror.AlreadyExists
		if err != nil && !errors.As(err, &exists) {
			return fmt.Errorf("add search attributes to namespace %s: %w; %s", s.Namespace, Explained(err), s.cloud())
		}
	}
	verb := "added"
	if s.DryRun {
		verb = "would add"
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		say(s.Out, "%s search attribute %s, %s", verb, name, missing[name])
	}
	return nil
}

// cloud returns the command that adds the search attributes on Temporal Cloud, because Temporal Cloud rejects
// the calls of Setup.
func (s *Setup) cloud() string {
	command := "on Temporal Cloud: tcld namespace search-attributes add --namespace " + s.Namespace
	all := SearchAttributes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		command += fmt.Sprintf(" --sa %s=%s", name, all[name])
	}
	return command
}

// retryWhileNew retries call while call fails because the namespace is unknown, for at most namespaceTimeout.
// retryWhileNew returns the error of the last call.
func retryWhileNew(ctx context.Context, call func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, namespaceInterval, namespaceTimeout, true, func(ctx context.Context) (bool, error) {
		last = call(ctx)
		var absent *serviceerror.NamespaceNotFound
		return !errors.As(last, &absent), nil
	})
	if err != nil && last == nil {
		return err
	}
	return last
}

func say(out io.Writer, format string, values ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", values...)
}

// call calls do with a timeout of callTimeout.
func call[Request, Answer any](ctx context.Context, do func(context.Context, Request, ...grpc.CallOption) (Answer, error), request Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return do(ctx, request)
}
