package temporal

import (
	"strings"

	"go.temporal.io/api/serviceerror"
)

// ExplainFleet returns one of these reasons.
const (
	FleetFile           = "file"
	FleetNamespace      = "namespace"
	FleetPermission     = "permission"
	FleetAuthentication = "authentication"
	FleetHandshake      = "handshake"
	FleetUnreachable    = "unreachable"
	FleetOther          = "other"
)

// FleetReasons returns all reasons of ExplainFleet.
func FleetReasons() []string {
	return []string{FleetFile, FleetNamespace, FleetPermission, FleetAuthentication, FleetHandshake, FleetUnreachable, FleetOther}
}

// ExplainFleet returns the reason of a failed call to the Temporal of a fleet, and a text with the cause and
// the remedy. The text is the same for each attempt and contains no secrets. If err is nil, reason and text are
// empty.
func ExplainFleet(err error) (reason, text string) {
	if err == nil {
		return "", ""
	}
	cause, remedy := Explain(err)
	switch {
	case strings.HasPrefix(cause, unusable):
		reason = FleetFile
	case cause == unknownNamespace:
		reason, remedy = FleetNamespace, "correct --fleet-temporal-namespace, or create it: outrigger temporal setup"
	case cause == permissionDenied:
		reason = FleetPermission
	case cause == unauthenticated:
		reason = FleetAuthentication
	case cause != "":
		reason = FleetHandshake
	case IsUnreachable(err):
		reason, cause, remedy = FleetUnreachable, "no answer", "check the server and the network, or correct --fleet-temporal-address"
	default:
		reason, cause, remedy = FleetOther, "Temporal answers "+serviceerror.ToStatus(err).Code().String(), "see the log of the worker"
	}
	return reason, cause + " (" + strings.ReplaceAll(remedy, "--temporal-", "--fleet-temporal-") + ")"
}
