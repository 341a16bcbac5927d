package temporal

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"google.golang.org/grpc/resolver"
)

// checkAddress returns an error with a corrected address if the address is not host:port. Without this check,
// gRPC would look up the scheme as a host, and use port 443 if the port is missing. Addresses with a scheme
// of gRPC, such as dns:///host:port, are not checked. If the port is missing or invalid, the corrected
// address has port 7233, or port 443 with TLS.
func checkAddress(address string, tls bool) error {
	if scheme, _, _ := strings.Cut(address, ":"); resolver.Get(scheme) != nil {
		return nil
	}
	hostPort, fault, option := address, "", ""
	if scheme, rest, found := strings.Cut(address, "://"); found {
		hostPort, _, _ = strings.Cut(rest, "/")
		fault = "has the scheme " + scheme
		if scheme == "https" {
			option, tls = " with --temporal-tls", true
		}
	}
	host, port, err := net.SplitHostPort(hostPort)
	number, invalid := strconv.ParseUint(port, 10, 16)
	switch {
	case fault != "":
	case err != nil, port == "":
		fault = "has no port"
	case invalid != nil, number == 0:
		fault = "has an invalid port"
	default:
		return nil
	}
	if err != nil {
		host = strings.Trim(hostPort, "[]")
	}
	if invalid != nil || number == 0 {
		port = "7233"
		if tls {
			port = "443"
		}
	}
	return fmt.Errorf("address %q of Temporal %s: use host:port, such as %s%s (--temporal-address or TEMPORAL_ADDRESS)",
		address, fault, net.JoinHostPort(host, port), option)
}
