//go:build e2e

package install

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/link"
	"github.com/outrigger/outrigger/test/realnode"
)

const (
	root       = "../../.."
	bin        = root + "/bin"
	programs   = bin + "/node"
	repository = "docker.io/local/"

	app, v1, v2 = repository + "app:1", repository + "side:v1", repository + "side:v2"
	// released is the repository of the image in the chart.
	released = "ghcr.io/outrigger/outrigger"
	// temporal is the image of the embedded Temporal.
	temporal = repository + "temporal:1"
	// temporalAddress is the address at which pods reach Temporal.
	temporalAddress = cluster.APIServerAddress + ":7233"
)

// node is a cluster with a real node, in which Outrigger is not installed. All tests of this package use
// node.
var node *cluster.Cluster

func TestMain(m *testing.M) {
	code, err := realnode.Contain(func(state string) int { return run(m, state) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
	}
	os.Exit(code)
}

func run(m *testing.M, state string) int {
	if err := start(state); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		return 1
	}
	defer node.Shutdown()
	return m.Run()
}

// start runs the control plane and the node. If start fails, the process ends, and the kernel kills all
// started processes.
func start(state string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	node, err = cluster.Start(ctx, cluster.Options{
		Dir: state, WithoutNodes: true, WebhooksAtPods: true, Hosts: []string{cluster.APIServerAddress},
	})
	if err != nil {
		return err
	}
	folder, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	images, err := images()
	if err != nil {
		return err
	}
	if _, err = realnode.Start(ctx, node, folder, state, images...); err != nil {
		return err
	}
	return forward()
}

// forward makes the API server and Temporal reachable from pods, because both servers listen only on
// localhost.
func forward() error {
	config, err := node.RESTConfig()
	if err != nil {
		return err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	for at, upstream := range map[string]string{cluster.APIServerAddress + ":443": server.Host, temporalAddress: node.TemporalAddress} {
		if _, err := link.Open(context.Background(), at, upstream); err != nil {
			return err
		}
	}
	return nil
}

func images() ([]realnode.Image, error) {
	version, err := version()
	if err != nil {
		return nil, err
	}
	all := []realnode.Image{{
		Name: released + ":" + version, Program: filepath.Join(programs, "outrigger"), Command: []string{"/outrigger"},
		User: "65532:65532", // This user is the user in the Dockerfile.
	}, {
		Name: temporal, Program: filepath.Join(bin, "temporal"), Command: []string{"/temporal"},
	}}
	for _, name := range []string{realnode.PauseImage, app, v1, v2} {
		all = append(all, realnode.Image{
			Name: name, Program: filepath.Join(programs, "container"), Command: []string{"/container", "wait"},
			Env: []string{"TAG=" + strings.TrimPrefix(name, repository)},
		})
	}
	return all, nil
}

// version returns the version of the images in the chart.
func version() (string, error) {
	data, err := os.ReadFile(filepath.Join(root, "charts/outrigger/Chart.yaml"))
	if err != nil {
		return "", err
	}
	var chart struct {
		AppVersion string `json:"appVersion"`
	}
	if err := yaml.Unmarshal(data, &chart); err != nil {
		return "", fmt.Errorf("read Chart.yaml: %w", err)
	}
	if chart.AppVersion == "" {
		return "", errors.New("read Chart.yaml: it has no appVersion")
	}
	return chart.AppVersion, nil
}
