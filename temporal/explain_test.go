package temporal

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestExplainedCausesAreStable(t *testing.T) {
	// broken returns a connection error in the format of gRPC.
	broken := func(text string) error {
		return serviceerror.NewUnavailable(fmt.Sprintf("connection error: desc = %q", text))
	}
	handshake := func(text string) error { return broken("transport: authentication handshake failed: " + text) }
	preface := func(text string) error { return broken("error reading server preface: " + text) }
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("something else"), ""},
		{context.DeadlineExceeded, ""},
		{broken("transport: Error while dialing: dial tcp 127.0.0.1:7233: connect: connection refused"), ""},
		{broken("transport: Error while dialing: dial tcp: lookup nowhere: no such host"), ""},
		{serviceerror.NewResourceExhausted(0, "namespace rate limit exceeded"), ""},
		{serviceerror.NewNotFound("workflow not found"), ""},
		{serviceerror.NewNamespaceNotFound("absent"), "the namespace does not exist"},
		{fmt.Errorf("start: %w", serviceerror.NewNamespaceNotFound("absent")), "the namespace does not exist"},
		{serviceerror.NewPermissionDenied("Request unauthorized.", "for key abc"), "permission denied"},
		{serviceerror.FromStatus(status.New(codes.Unauthenticated, "key abc has expired")), "unauthenticated"},
		{fmt.Errorf("start: %w", status.Error(codes.Unauthenticated, "key abc")), "unauthenticated"},
		{handshake("tls: failed to verify certificate: x509: certificate signed by unknown authority"), "the server's certificate is signed by an unknown authority"},
		{handshake("tls: failed to verify certificate: x509: certificate is valid for a, not b"), "the server's certificate is for another name"},
		{handshake("tls: failed to verify certificate: x509: cannot validate certificate for 10.0.0.1 because it doesn't contain any IP SANs"), "the server's certificate is for another name"},
		{handshake("tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-22T10:00:00Z is after"), "the server's certificate is not valid at this time"},
		{handshake("tls: failed to verify certificate: x509: too many intermediates for path length constraint"), "the server's certificate is rejected"},
		{handshake("tls: first record does not look like a TLS handshake"), "the server does not speak TLS"},
		{handshake("credentials: cannot check peer: missing selected ALPN property"), "the server does not speak HTTP/2 over TLS"},
		{handshake("remote error: tls: unrecognized name"), "the server does not know the server name"},
		{handshake("remote error: tls: handshake failure"), "the server rejects the TLS handshake"},
		{handshake("remote error: tls: bad certificate"), "the server rejects the client certificate"},
		{preface("remote error: tls: unknown certificate authority"), "the server rejects the client certificate"},
		{preface("remote error: tls: certificate required"), "the server wants a client certificate"},
		{preface("http2: failed reading the frame payload: http2: frame too large, note that the frame header looked like an HTTP/1.1 header"), "the server does not speak gRPC"},
		{preface("EOF"), ""},
		{preface("read tcp 127.0.0.1:4711->127.0.0.1:7233: read: connection reset by peer"), ""},
		{handshake(`unusable file: open /etc/temporal/tls.crt: no such file or directory`), "unusable file: open /etc/temporal/tls.crt: no such file or directory"},
	} {
		cause, remedy := Explain(test.err)
		assert.Equal(t, test.want, cause, "%v", test.err)
		assert.Equal(t, cause == "", remedy == "", "a cause has a remedy")
		assert.NotContains(t, cause+remedy, "abc", "no words of the server's about a key")
		if test.err != nil {
			assert.NotContains(t, WithoutSecrets(test.err), "abc")
		}
	}
	_, remedy := Explain(serviceerror.NewNamespaceNotFound("absent"))
	assert.Equal(t, "correct --temporal-namespace or TEMPORAL_NAMESPACE, or create it: outrigger temporal setup", remedy)
}

func TestAnUnansweredCallNamesItsCause(t *testing.T) {
	dialing := func(text string) error {
		return serviceerror.NewUnavailable(fmt.Sprintf("connection error: desc = %q", "transport: Error while dialing: "+text))
	}
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("something else"), ""},
		{serviceerror.NewNotFound("workflow not found"), ""},
		{serviceerror.NewNamespaceNotFound("absent"), "the namespace does not exist"},
		{dialing("dial tcp 127.0.0.1:7233: connect: connection refused"), "connection refused"},
		{dialing("dial tcp: lookup nowhere: no such host"), "unknown host"},
		{serviceerror.NewUnavailable("no children to pick from"), "unknown host"},
		{context.DeadlineExceeded, "no answer"},
		{dialing("dial tcp 10.0.0.1:7233: i/o timeout"), "no answer"},
	} {
		cause, remedy := ExplainCall(test.err)
		assert.Equal(t, test.want, cause, "%v", test.err)
		assert.Equal(t, cause == "", remedy == "", "a cause has a remedy")
	}
}
