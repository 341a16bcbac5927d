package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/outrigger/outrigger/dev/cluster"
	"github.com/outrigger/outrigger/dev/cluster/process"
	"github.com/outrigger/outrigger/test/realnode"
)

const (
	// runCommand is the name of the command that runs the node in the foreground.
	runCommand = "run"
	bin        = "bin"
	programs   = bin + "/node"
	// registry is the address of the registry inside the namespaces. containerd uses plain HTTP for
	// localhost.
	registry = "localhost:5000"
	// startLimit limits the start of all processes.
	startLimit = 5 * time.Minute
)

// site describes a running node.
type site struct {
	// PID is the process outside of the namespaces. When this process ends, all processes of the node end.
	PID int
	// State is the directory of all files of the node.
	State                string
	Kubeconfig, Temporal string
}

// run runs the node until the process is stopped. When all processes are ready, run writes the site to
// stdout.
func run() error {
	ctrllog.SetLogger(logr.Discard())
	code, err := realnode.Contain(func(state string) int {
		if err := runInside(state); err != nil {
			fmt.Fprintln(os.Stderr, "node:", err)
			return 1
		}
		return 0
	})
	if err == nil && code != 0 {
		err = errors.New("the node ended")
	}
	return err
}

func runInside(state string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	stack, err := cluster.Start(ctx, cluster.Options{Dir: state, WithoutNodes: true})
	if err != nil {
		return err
	}
	defer stack.Shutdown()
	folder, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	if _, err := realnode.Start(ctx, stack, folder, state, images()...); err != nil {
		return err
	}
	for _, role := range []string{cluster.Operator, cluster.Webhook, "worker-1"} {
		if _, err := stack.StartRole(ctx, role); err != nil {
			return err
		}
	}
	if err := startRegistry(ctx, stack, folder, state); err != nil {
		return err
	}
	ready := site{State: state, Kubeconfig: stack.Kubeconfig, Temporal: stack.TemporalAddress}
	if err := json.NewEncoder(os.Stdout).Encode(ready); err != nil {
		return fmt.Errorf("report that the node is ready: %w", err)
	}
	select {} // The process outside of the namespaces stops this process.
}

// startRegistry runs a registry, to which users push images for the node.
func startRegistry(ctx context.Context, stack *cluster.Cluster, folder, state string) error {
	images := filepath.Join(state, "registry")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return fmt.Errorf("create the directory of the registry: %w", err)
	}
	return stack.Start(ctx, process.Spec{
		Name: "registry", Path: filepath.Join(folder, "crane"),
		Args: []string{"registry", "serve", "--address=" + strings.Replace(registry, "localhost", "127.0.0.1", 1), "--disk=" + images},
		Ready: func(ctx context.Context) error {
			connection, err := new(net.Dialer).DialContext(ctx, "tcp", registry)
			if err != nil {
				return err
			}
			return connection.Close()
		},
	})
}

// images returns the images of an app, of two versions of a sidecar, and of the pause container.
func images() (all []realnode.Image) {
	for _, name := range []string{realnode.PauseImage, "docker.io/local/app:1", "docker.io/local/side:v1", "docker.io/local/side:v2"} {
		all = append(all, realnode.Image{
			Name: name, Program: filepath.Join(programs, "container"), Command: []string{"/container", "wait"}, Env: []string{"TAG=" + name},
		})
	}
	return all
}
