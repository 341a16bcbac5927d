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
	// readIdleTimeout is the time without traffic after which the HTTP/2 transport pings the API server. The
	// transport closes the connection if no response arrives within pingTimeout.
	readIdleTimeout = 2 * time.Second
	pingTimeout     = 3 * time.Second
	// dialTimeout is short because the kernel retransmits a lost SYN with exponential backoff. With a longer
	// timeout, an attempt that begins during an outage could last until long after the outage.
	dialTimeout = 2 * time.Second
)

// setConnectionTimeouts makes client-go close dead connections within seconds instead of 45 s. client-go reads
// the ping timeouts only from environment variables. Therefore, setConnectionTimeouts sets each of these
// variables that is empty.
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
