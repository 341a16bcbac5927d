// Command probe requests one URL. If the status is 200, the exit code of probe is 0. An image that is built
// from scratch contains no other program for health checks.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	if err := probe(strings.Join(os.Args[1:], " ")); err != nil {
		fmt.Fprintln(os.Stderr, "probe URL:", err)
		os.Exit(1)
	}
}

func probe(url string) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return nil
}
