package temporal

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The texts name the flags of the fleet, and are the same for each attempt.
func TestSpec12_9_AFailedCallToTheFleetHasAReasonAndARemedy(t *testing.T) {
	for _, test := range []struct {
		err          error
		reason, text string
	}{
		{nil, "", ""},
		{serviceerror.NewNamespaceNotFound("absent"), FleetNamespace, "the namespace does not exist (correct --fleet-temporal-namespace, or create it: outrigger temporal setup)"},
		{serviceerror.NewPermissionDenied("Request unauthorized.", "for key abc"), FleetPermission, "permission denied (check whether the API key or the client certificate has access to this namespace)"},
		{status.Error(codes.Unauthenticated, "key abc"), FleetAuthentication, "unauthenticated (check the API key: it is missing, wrong or expired)"},
		{serviceerror.NewUnavailable(`transport: authentication handshake failed: x509: certificate signed by unknown authority`), FleetHandshake, "the server's certificate is signed by an unknown authority (set its CA with --fleet-temporal-tls-ca-path)"},
		{status.Error(codes.Unavailable, "unusable file: open /tls.crt: no such file"), FleetFile, "unusable file: open /tls.crt: no such file (mount the file, or correct the flag or variable with its path; the file is read again at the next attempt)"},
		{serviceerror.NewUnavailable("dial tcp 10.0.0.1:7233: connect: connection refused"), FleetUnreachable, "no answer (check the server and the network, or correct --fleet-temporal-address)"},
		{context.DeadlineExceeded, FleetUnreachable, "no answer (check the server and the network, or correct --fleet-temporal-address)"},
		{serviceerror.NewResourceExhausted(0, "limit of abc"), FleetOther, "Temporal answers ResourceExhausted (see the log of the worker)"},
	} {
		reason, text := ExplainFleet(test.err)
		assert.Equal(t, test.reason, reason, "%v", test.err)
		assert.Equal(t, test.text, text, "%v", test.err)
	}
}
