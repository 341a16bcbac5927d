package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"golang.org/x/sys/unix"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/kube"
)

// connect sets the clients of the API server and of Temporal. The servers need not run yet.
func (c *Cluster) connect() error {
	config, err := c.RESTConfig()
	if err != nil {
		return err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	if err := admissionregistrationv1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("register API types: %w", err)
	}
	if c.Kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("set up a client: %w", err)
	}
	c.Temporal, err = sdk.NewLazyClient(sdk.Options{
		HostPort: c.TemporalAddress, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
	})
	if err != nil {
		return fmt.Errorf("set up a client of Temporal: %w", err)
	}
	return nil
}

// Get returns the response body of url. A status other than 200 is an error. Get does not verify certificates,
// because the health endpoints of the control plane have self-signed certificates.
func Get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.1024s", url, response.Status, body)
	}
	return body, err
}

// Scrape reads the metrics at url, and returns the metric families by name.
func Scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	metrics, err := Get(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(metrics))
}

// minShared is the free space in /dev/shm that a cluster needs, in bytes. By default, the /dev/shm of a
// container has only 64 MiB.
const minShared = 4 << 30

// TempDir creates a directory for the state of a cluster. If /dev/shm has enough free space, the directory is in
// /dev/shm.
func TempDir(pattern string) (string, error) {
	const shared = "/dev/shm"
	parent := ""
	var space unix.Statfs_t
	if unix.Statfs(shared, &space) == nil && space.Bavail*uint64(space.Bsize) >= minShared {
		parent = shared
	}
	dir, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", fmt.Errorf("create a state directory: %w", err)
	}
	return dir, nil
}
