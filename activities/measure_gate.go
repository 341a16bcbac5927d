package activities

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	outriggerv1 "github.com/outrigger/outrigger/api/outrigger/v1alpha1"
	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/internal/gate"
)

// maxAnswer is the maximum size of a response of a provider, in bytes.
const maxAnswer = 1 << 20

// NewGateClient returns the HTTP client of gates. The client follows no redirect, because a redirect could
// send the credentials to an address without TLS.
func NewGateClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// MeasureGate makes one measurement of a gate (SPEC §11.14). MeasureGate writes nothing to the cluster, and
// starts the workflow of a gate at most once, so the activity can be cancelled and retried at any time. If the
// provider is unavailable, MeasureGate returns an error, and Temporal retries the activity.
func (a *Activities) MeasureGate(ctx context.Context, input protocol.MeasureGateInput) (protocol.Measurement, error) {
	if err := notDue(input.NotBefore, activity.GetInfo(ctx).StartedTime); err != nil {
		return protocol.Measurement{}, err
	}
	defer keepHeartbeating(ctx, a.Clock)()
	ctx, cancel := context.WithTimeout(ctx, gate.Timeout(&input.Gate))
	defer cancel()
	set, err := a.liveSet(ctx, input.SidecarSet)
	if err != nil {
		return protocol.Measurement{}, err
	}
	if set == nil || set.Generation != input.Generation {
		return protocol.Measurement{Phase: protocol.GateRunning, Message: "the SidecarSet has changed"}, nil
	}
	m := &measurement{
		Activities: a, input: input, revision: set.Status.LatestRevision, workflow: workflowOfGate(&input), remedy: "correct the policy and promote the step",
	}
	problem, err := m.checkCredentials(ctx)
	if problem != "" {
		return inconclusive(protocol.Summary(problem)), nil
	}
	var measured protocol.Measurement
	if err == nil {
		measured, err = m.measure(ctx)
	}
	if err != nil {
		return measured, fmt.Errorf("RolloutPolicy %s: gate %s: %w", input.Policy, input.Gate.Name, err)
	}
	measured.Message = protocol.Summary(measured.Message)
	return measured, nil
}

// notDue returns an error if a measurement begins before the time due. Temporal retries the activity at the time
// due. due and began are times of the clock of the Temporal server. The category of the error is benign, so the
// SDK does not log the error or count the error as a failure.
func notDue(due, began time.Time) error {
	wait := due.Sub(began)
	if wait <= 0 {
		return nil
	}
	return temporal.NewApplicationErrorWithOptions("the measurement is due at "+due.UTC().Format(time.RFC3339), protocol.GateNotDue,
		temporal.ApplicationErrorOptions{NextRetryDelay: wait, Category: temporal.ApplicationErrorCategoryBenign})
}

// measurement is the state of one MeasureGate or MeasureFleetGate activity in progress.
type measurement struct {
	*Activities
	input    protocol.MeasureGateInput
	revision string
	// workflow is the id of the workflow of the gate. remedy is the text that tells the user how to correct
	// an invalid field.
	workflow, remedy string
}

func (m *measurement) measure(ctx context.Context) (protocol.Measurement, error) {
	switch {
	case m.input.Gate.Prometheus != nil:
		return m.query(ctx, m.input.Gate.Prometheus)
	case m.input.Gate.Webhook != nil:
		return m.ask(ctx, m.input.Gate.Webhook)
	case m.input.Gate.Workflow != nil:
		return m.runWorkflow(ctx, m.input.Gate.Workflow)
	}
	return inconclusive("this version of the worker does not know the kind of the gate"), nil
}

func inconclusive(message string) protocol.Measurement {
	return protocol.Measurement{Phase: protocol.GateInconclusive, Message: message}
}

// invalid returns the measurement of a gate with an invalid field. The field comes from the run or from
// status, and not from the policy, so a correction of the policy does not change the field.
func (m *measurement) invalid(field, value string, err error) protocol.Measurement {
	return inconclusive(fmt.Sprintf("%s %q: %s; %s", field, value, err, m.remedy))
}

// send sends a request with the credentials of a gate, which send reads again for each request. Errors do not
// contain the credentials. If the response has the status 429, or 500 and higher, send returns an error, because
// a retry may succeed.
func (m *measurement) send(ctx context.Context, request *http.Request, credentials *outriggerv1.GateCredentials) (status int, body []byte, err error) {
	if err := m.authorize(ctx, request, credentials); err != nil {
		return 0, nil, err
	}
	response, err := m.GateClient.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("ask %s: %w", place(request.URL), withoutURL(err))
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("read the answer of %s: %w", place(request.URL), withoutURL(err))
	}
	if response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests {
		return 0, nil, fmt.Errorf("ask %s: the answer is %s", place(request.URL), response.Status)
	}
	return response.StatusCode, body, nil
}

// place returns the address of a provider without credentials and parameters.
func place(address *url.URL) string { return address.Scheme + "://" + address.Host + address.Path }

// withoutURL returns the cause of an error of the HTTP client. The error itself quotes the URL, which may
// contain credentials.
func withoutURL(err error) error {
	if quoted, ok := errors.AsType[*url.Error](err); ok {
		return quoted.Err
	}
	return err
}

// checkCredentials returns a problem if the RolloutPolicy has no gate with the address and the credentials of
// this gate. After the loss of a run, the next run restores the step from status. Without this check, a user with
// the permission to write status could choose the address that receives the credentials.
func (m *measurement) checkCredentials(ctx context.Context) (problem string, err error) {
	address, credentials := gate.Credentials(&m.input.Gate)
	if credentials == "" {
		return "", nil
	}
	policies, err := m.policiesSince(ctx, m.Clock.Now())
	if err != nil {
		return "", err
	}
	for i := range policies {
		if policies[i].Name == m.input.Policy && gate.Sends(&policies[i].Spec, m.input.Gate.Name, address, credentials) {
			return "", nil
		}
	}
	return fmt.Sprintf("the Secret %s is not sent, because RolloutPolicy %s has no gate %s with this address and this Secret any more; restore the gate in the policy and resume, or promote the step",
		credentials, m.input.Policy, m.input.Gate.Name), nil
}

func (m *measurement) authorize(ctx context.Context, request *http.Request, credentials *outriggerv1.GateCredentials) error {
	if credentials == nil {
		return nil
	}
	secret := &corev1.Secret{}
	name := types.NamespacedName{Namespace: m.SystemNamespace, Name: credentials.Name}
	if err := m.Live.Get(ctx, name, secret); err != nil {
		return fmt.Errorf("read the credentials in Secret %s: %w", name, err)
	}
	// A Secret made from a file often has a final line break.
	text := func(key string) string { return strings.TrimRight(string(secret.Data[key]), "\r\n") }
	token, password := strings.TrimSpace(text("token")), text("password")
	switch {
	case token != "":
		request.Header.Set("Authorization", "Bearer "+token)
	case password != "":
		request.SetBasicAuth(text("username"), password)
	default:
		return fmt.Errorf("the Secret %s has neither the key token nor the keys username and password; add them", name)
	}
	return nil
}
