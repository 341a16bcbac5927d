package temporal

import (
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
)

// Explain turns the error of a call to Temporal into its cause and a remedy, in words that
// stay the same from one attempt to the next and quote no secret, so that they can go into
// conditions. Both are empty for an outage and for what it does not know.
func Explain(err error) (cause, remedy string) {
	if err == nil {
		return "", ""
	}
	text := err.Error()
	if _, file, found := strings.Cut(text, unusable); found {
		// gRPC quotes it.
		file, _, _ = strings.Cut(file, `"`)
		return unusable + file, "mount it, or correct the flag or variable that names it; it is read again"
	}
	var unknownNamespace *serviceerror.NamespaceNotFound
	var denied *serviceerror.PermissionDenied
	switch {
	case errors.As(err, &unknownNamespace):
		return "the namespace does not exist", "outrigger temporal setup creates it"
	case errors.As(err, &denied):
		return "permission denied", "may the API key or the client certificate use this namespace?"
	case serviceerror.ToStatus(err).Code() == codes.Unauthenticated:
		return "unauthenticated", "is there an API key, is it right and not expired?"
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

// explained is the cause and the remedy where they are known, and else err.
func explained(err error) error {
	if cause, remedy := Explain(err); cause != "" {
		return fmt.Errorf("%s (%s)", cause, remedy)
	}
	return err
}

type handshake struct {
	signs         []string
	cause, remedy string
}

// handshakes are the failures of TLS; gRPC hands their text on, and not the errors. The
// first that fits counts.
func handshakes() []handshake {
	return []handshake{
		{[]string{"x509: certificate signed by unknown authority", "x509: certificate is not standards compliant"},
			"the server's certificate is signed by an unknown authority", "name its CA with --temporal-tls-ca-path"},
		{[]string{"x509: certificate is valid for ", "x509: certificate is not valid for any names", "x509: cannot validate certificate for "},
			"the server's certificate is for another name", "name one that it holds with --temporal-tls-server-name"},
		{[]string{"x509: certificate has expired or is not yet valid"},
			"the server's certificate is not valid at this time", "renew it, or correct the clock"},
		{[]string{"tls: failed to verify certificate"},
			"the server's certificate is refused", "compare it with --temporal-tls-ca-path"},
		{[]string{"remote error: tls: certificate required"},
			"the server wants a client certificate", "name one with --temporal-tls-cert-path and --temporal-tls-key-path"},
		{[]string{"remote error: tls: bad certificate", "remote error: tls: unknown certificate", "remote error: tls: expired certificate",
			"remote error: tls: revoked certificate", "remote error: tls: unsupported certificate", "remote error: tls: access denied"},
			"the server refuses the client certificate", "does it trust the certificate's CA, and is the certificate valid?"},
		{[]string{"remote error: tls: unrecognized name"},
			"the server does not know the server name", "correct --temporal-tls-server-name"},
		{[]string{"remote error: tls: "},
			"the server refuses the TLS handshake", "see the server's log"},
		{[]string{"first record does not look like a TLS handshake"},
			"the server does not speak TLS", "turn it off with --temporal-tls=false, or correct the address"},
		{[]string{"missing selected ALPN property"},
			"the server does not speak HTTP/2 over TLS", "have what ends TLS before it offer h2, or correct the address"},
		// A connection that is merely closed may be one to a server that ends.
		{[]string{"error reading server preface: http2: "},
			"the server does not speak gRPC", "correct the address, or use TLS (--temporal-tls)"},
	}
}
