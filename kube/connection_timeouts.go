package kube

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// A connection without traffic for readIdleTimeout is pinged, and closed when no
	// answer comes within pingTimeout.
	readIdleTimeout = 2 * time.Second
	pingTimeout     = 3 * time.Second
	// dialTimeout is short because the system retransmits a lost SYN ever more
	// rarely: an attempt that began in an outage may end long after it.
	dialTimeout = 2 * time.Second
)

// setConnectionTimeouts has dead connections closed within seconds; client-go would
// wait for 45. It reads environment variables only, and those that are set already
// stay.
func setConnectionTimeouts(config *rest.Config) error {
	for name, after := range map[string]time.Duration{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": readIdleTimeout,
		"HTTP2_PING_TIMEOUT_SECONDS":      pingTimeout,
	} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, strconv.Itoa(int(after.Seconds()))); err != nil {
			return fmt.Errorf("set %s for connections to the API server: %w", name, err)
		}
	}
	config.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	return nil
}
