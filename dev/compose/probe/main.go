// Command probe asks one URL and ends with 0 when it answers 200. Images built
// from scratch have nothing else to check their health with.
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

// probe fails unless GET of the one argument answers 200. Certificates are not
// checked: the probe is about health, not identity.
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
