package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
)

// checkWebhookURL finds now what would otherwise stop the webhook after all others
// have started: a URL that no API server calls, or a port that is not free here.
func checkWebhookURL(ctx context.Context, written string) error {
	parsed, err := url.Parse(written)
	if err != nil {
		return fmt.Errorf("webhook URL: %w", err)
	}
	port, err := strconv.ParseUint(parsed.Port(), 10, 16)
	switch {
	case parsed.Scheme != "https":
		err = errors.New("API servers call https only, as in https://localhost:9443")
	case parsed.Hostname() == "":
		err = errors.New("name the host, as in https://localhost:9443")
	case parsed.Port() == "":
		err = errors.New("add the port to listen on, as in https://localhost:9443")
	case err != nil || port == 0:
		err = fmt.Errorf("port %s: use one from 1 to 65535", parsed.Port())
	case parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		err = errors.New("leave out the query, fragment and user: API servers take none")
	default:
		err = tryPort(ctx, parsed.Port())
	}
	if err != nil {
		return fmt.Errorf("webhook URL %s: %w", written, err)
	}
	return nil
}

func tryPort(ctx context.Context, port string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("", port))
	if err != nil {
		return fmt.Errorf("%w (stop who listens there, or choose another port)", err)
	}
	return listener.Close()
}
