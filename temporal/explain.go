package temporal

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
)

// ExplainFleet compares these causes with the result of Explain.
const (
	unknownNamespace = "the namespace does not exist"
	permissionDenied = "permission denied"
	unauthenticated  = "unauthenticated"
)

// Explain returns the cause of a failed call to Temporal, and a remedy. The texts are the same for each attempt
// and contain no secrets, so conditions can show the texts. cause and remedy are empty if err is nil or
// unknown, or if err reports an outage.
func Explain(err error) (cause, remedy string) {
	if err == nil {
		return "", ""
	}
	text := err.Error()
	if _, file, found := strings.Cut(text, unusable); found {
		// gRPC quotes the error text.
		file, _, _ = strings.Cut(file, `"`)
		return unusable + file, "mount the file, or correct the flag or variable with its path; the file is read again at the next attempt"
	}
	var missing *serviceerror.NamespaceNotFound
	var denied *serviceerror.PermissionDenied
	switch {
	case errors.As(err, &missing):
		return unknownNamespace, "correct --temporal-namespace or TEMPORAL_NAMESPACE, or create it: outrigger temporal setup"
	case errors.As(err, &denied):
		return permissionDenied, "check whether the API key or the client certificate has access to this namespace"
	case serviceerror.ToStatus(err).Code() == codes.Unauthenticated:
		return unauthenticated, "check the API key: it is missing, wrong or expired"
	}
	for _, known := range handshakes() {
		for _, sign := range known.signs {
			if strings.Contains(text, sign) {
				return known.cause, known.remedy
			}
		}
	}
	return "", ""
}

// WithoutSecrets returns the text of an error, for a log or a heartbeat. If Explain returns a cause, the text
// contains only the cause and the remedy, because a server may quote rejected credentials in the error.
func WithoutSecrets(err error) string {
	if cause, remedy := Explain(err); cause != "" {
		return fmt.Sprintf("%s (%s)", cause, remedy)
	}
	return err.Error()
}

// ExplainCall returns the cause of one failed call, and a remedy. Unlike Explain, ExplainCall also explains
// outages, with texts that may change with each attempt.
func ExplainCall(err error) (cause, remedy string) {
	if cause, remedy = Explain(err); cause != "" || !IsUnreachable(err) {
		return cause, remedy
	}
	const correct = "correct --temporal-address or TEMPORAL_ADDRESS"
	switch text := err.Error(); {
	case strings.Contains(text, "connection refused"):
		return "connection refused", "start the server, or " + correct
	// If a name has no addresses, gRPC returns the second text.
	case strings.Contains(text, "no such host"), strings.Contains(text, "no children to pick from"):
		return "unknown host", correct
	}
	return "no answer", "check the server, the network and --temporal-tls, or " + correct
}

// Explained returns an error with the cause and the remedy of ExplainCall, or err if the cause is unknown.
func Explained(err error) error {
	if cause, remedy := ExplainCall(err); cause != "" {
		return fmt.Errorf("%s (%s)", cause, remedy)
	}
	return err
}

type handshake struct {
	signs         []string
	cause, remedy string
}

// handshakes returns the known failures of TLS handshakes. The first entry with a matching sign applies. The
// signs are parts of error texts, because gRPC returns only the texts of these failures.
func handshakes() []handshake {
	return []handshake{
		{[]string{"x509: certificate signed by unknown authority", "x509: certificate is not standards compliant"},
			"the server's certificate is signed by an unknown authority", "set its CA with --temporal-tls-ca-path"},
		{[]string{"x509: certificate is valid for ", "x509: certificate is not valid for any names", "x509: cannot validate certificate for "},
			"the server's certificate is for another name", "select one of its names with --temporal-tls-server-name"},
		{[]string{"x509: certificate has expired or is not yet valid"},
			"the server's certificate is not valid at this time", "renew it, or correct the clock"},
		{[]string{"tls: failed to verify certificate"},
			"the server's certificate is rejected", "compare it with --temporal-tls-ca-path"},
		{[]string{"remote error: tls: certificate required"},
			"the server wants a client certificate", "set one with --temporal-tls-cert-path and --temporal-tls-key-path"},
		{[]string{"remote error: tls: bad certificate", "remote error: tls: unknown certificate", "remote error: tls: expired certificate",
			"remote error: tls: revoked certificate", "remote error: tls: unsupported certificate", "remote error: tls: access denied"},
			"the server rejects the client certificate", "check that the server trusts its CA and that it is valid"},
		{[]string{"remote error: tls: unrecognized name"},
			"the server does not know the server name", "correct --temporal-tls-server-name"},
		{[]string{"remote error: tls: "},
			"the server rejects the TLS handshake", "check the log of the server"},
		{[]string{"first record does not look like a TLS handshake"},
			"the server does not speak TLS", "turn it off with --temporal-tls=false, or correct the address"},
		{[]string{"missing selected ALPN property"},
			"the server does not speak HTTP/2 over TLS", "let the TLS proxy offer h2, or correct the address"},
		// The sign includes "http2: ", because a server that stops also closes the connection before the
		// preface.
		{[]string{"error reading server preface: http2: "},
			"the server does not speak gRPC", "correct the address, or use TLS (--temporal-tls)"},
	}
}
