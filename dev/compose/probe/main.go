// Command probe requests one URL. If the status is 200, the exit code of probe is 0. An image that is built
// from scratch contains no other program for health checks.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

const timeout = 5 * time.Second

var errUsage = errors.New("usage: probe URL")

func main() {
	if err := probe(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

// probe requests the URL in the only argument, and returns an error unless the status is 200. Certificates are
// not verified, because a health check sends and receives no secrets.
func probe(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", args[0], response.Status)
	}
	return nil
}
