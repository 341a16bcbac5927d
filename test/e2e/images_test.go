//go:build e2e

package e2e

import (
	"path/filepath"
	"strings"

	"github.com/outrigger/outrigger/test/realnode"
)

const (
	repository = "docker.io/local/"

	v1, v2 = repository + "side:v1", repository + "side:v2"
	empty  = repository + "server:empty"
	// absent is an image that is not on the node and cannot be pulled.
	absent = repository + "side:absent"
	// slow is the image of a sidecar that becomes ready after ten seconds.
	slow = repository + "server:slow"
)

// images returns the images of the node.
func images() []realnode.Image {
	all := []realnode.Image{
		idle("pause:1"), idle("app:1"), idle("side:v1"), idle("side:v2"),
		{Name: empty, Program: filepath.Join(programs, "empty"), Command: []string{"/sidecar", "serve"}},
		server("slow", "WARM_UP=10s"),
	}
	for _, release := range releases() {
		all = append(all, server(release))
	}
	for _, name := range moves() {
		all = append(all, idle(strings.TrimPrefix(name, repository)))
	}
	return all
}

// moves returns additional images of idle sidecars.
func moves() []string {
	return []string{repository + "side:m1", repository + "side:m2", repository + "side:m3"}
}

// releases returns the releases of the server, the oldest first.
func releases() []string { return []string{"r1", "r2", "r3", "r4", "r5", "r6"} }

// idle returns an image whose program waits for SIGTERM. Each tag has a different image ID.
func idle(tag string) realnode.Image {
	return realnode.Image{
		Name: repository + tag, Program: filepath.Join(programs, "container"),
		Command: []string{"/container", "wait"}, Env: []string{"TAG=" + tag},
	}
}

// server returns an image of the sidecar of examples/hot-upgrade.
func server(release string, env ...string) realnode.Image {
	return realnode.Image{
		Name: repository + "server:" + release, Program: filepath.Join(programs, "sidecar"),
		Command: []string{"/sidecar", "serve"}, Env: append(env, "RELEASE="+release),
	}
}
