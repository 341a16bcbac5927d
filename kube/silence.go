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
	// A connection on which nothing was heard for pingAfter is asked for a sign of
	// life, and given up when there is none within pingPatience.
	pingAfter    = 2 * time.Second
	pingPatience = 3 * time.Second
	// dialPatience is short because the system repeats a lost attempt ever more
	// rarely: one that began in an outage may end long after it.
	dialPatience = 2 * time.Second
)

// noticeSilence has connections that lead nowhere any more given up within
// seconds; client-go would wait for 45. Environment variables are the only way to
// tell it, and those that are set already stay.
func noticeSilence(config *rest.Config) error {
	for name, after := range map[string]time.Duration{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": pingAfter,
		"HTTP2_PING_TIMEOUT_SECONDS":      pingPatience,
	} {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, strconv.Itoa(int(after.Seconds()))); err != nil {
			return fmt.Errorf("set %s for connections to the API server: %w", name, err)
		}
	}
	config.Dial = (&net.Dialer{Timeout: dialPatience}).DialContext
	return nil
}
