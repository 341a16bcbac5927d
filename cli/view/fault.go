package view

import "github.com/outrigger/outrigger/api/v1alpha1"

// OperatorLease is the name of the leader election Lease of the operator.
const OperatorLease = "outrigger-operator"

// OperatorNotResponding is the reason of a Fault of the operator.
const OperatorNotResponding = "OperatorNotResponding"

// RunNotResponding is the reason of a Fault of the workers that only the run of a SidecarSet shows.
const RunNotResponding = "RunNotResponding"

// Fault is a part of the installation that does not respond. A Fault is also reported while no rollout is in
// progress (SPEC §8.10). The zero value means that no fault is known.
type Fault struct {
	// Reason is OperatorNotResponding, RunNotResponding, or a reason of a condition about Temporal, the workers
	// or the webhook.
	Reason string `json:"reason"`
	// Message contains the cause, and the next command.
	Message string `json:"message"`
}

// The method part returns one of these names.
const (
	operatorPart = "Operator"
	temporalPart = "Temporal"
	workersPart  = "Workers"
	webhookPart  = "Webhook"
)

// part returns the name of the part that does not respond. For the zero Fault, part returns an empty string.
func (f Fault) part() string {
	switch f.Reason {
	case "":
		return ""
	case v1alpha1.ReasonTemporalUnavailable:
		return temporalPart
	case v1alpha1.ReasonWorkerUnavailable, RunNotResponding:
		return workersPart
	case v1alpha1.ReasonWebhookUnavailable:
		return webhookPart
	}
	return operatorPart
}

// Line returns the line about the fault that commands print below a list. For the zero Fault, Line returns an
// empty string.
func (f Fault) Line() string {
	if f == (Fault{}) {
		return ""
	}
	return f.part() + ": " + f.Message + "\n"
}
