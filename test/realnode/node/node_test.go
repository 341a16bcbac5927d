//go:build e2e

package main

import (
	"archive/tar"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(programs, "node"), args...).CombinedOutput()
	return string(out), err
}

func node(t *testing.T, args ...string) string {
	t.Helper()
	out, err := try(t, args...)
	require.NoError(t, err, "%v: %s", args, out)
	return out
}

// layer writes a layer of an image that contains the program of the tests and a file with content, and
// returns the path.
func layer(t *testing.T, content string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "layer.tar")
	archive, err := os.Create(file)
	require.NoError(t, err)
	defer archive.Close()
	program, err := os.ReadFile(filepath.Join(programs, "container"))
	require.NoError(t, err)
	writer := tar.NewWriter(archive)
	for name, data := range map[string][]byte{"container": program, "content": []byte(content)} {
		require.NoError(t, writer.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}))
		_, err := writer.Write(data)
		require.NoError(t, err)
	}
	require.NoError(t, writer.Close())
	return file
}

// imageOf pushes an image with content under the tag latest, starts a pod with this tag, and returns the
// image ID of the container.
func imageOf(t *testing.T, pod, content string) string {
	t.Helper()
	const image = registry + "/team/app:latest"
	node(t, "shell", "crane", "append", "--new_layer="+layer(t, content), "--new_tag="+image)
	node(t, "shell", "kubectl", "run", pod, "--image="+image, "--image-pull-policy=Always", "--command", "--", "/container", "wait")
	node(t, "shell", "kubectl", "wait", "--for=condition=Ready", "pod/"+pod, "--timeout=2m")
	return node(t, "shell", "kubectl", "get", "pod", pod, "--output=jsonpath={.status.containerStatuses[0].imageID}")
}

// The terminal of make node may close during the start.
func TestANodeWhoseStartWasInterruptedIsStopped(t *testing.T) {
	t.Chdir("../../..")
	require.NoError(t, os.RemoveAll(siteFile))
	starting := exec.CommandContext(t.Context(), filepath.Join(programs, "node"), "up")
	require.NoError(t, starting.Start())
	require.Eventually(t, func() bool {
		// The test does not call running, because running locks the file, and the lock makes the start fail.
		data, err := os.ReadFile(siteFile)
		return err == nil && len(data) > 0
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, starting.Process.Kill())
	require.Error(t, starting.Wait())
	out, err := try(t, "shell", "true")
	require.Error(t, err)
	assert.Equal(t, "node: the node still starts: try again\n", out)
	node(t, "down")
	_, err = running()
	require.ErrorIs(t, err, errNotRunning)
}

func TestTheNodeStaysUpAndRunsPushedImages(t *testing.T) {
	t.Chdir("../../..")
	t.Cleanup(func() {
		out, err := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(programs, "node"), "down").CombinedOutput()
		assert.NoError(t, err, string(out))
	})
	assert.Contains(t, node(t, "up"), "The node is up")
	out, err := try(t, "up")
	require.Error(t, err)
	assert.Contains(t, out, "node: a node runs already: make node-shell enters it, and make node-down stops it\n")

	assert.Equal(t, "node/real\n", node(t, "shell", "kubectl", "get", "nodes", "--output=name"))
	assert.Regexp(t, `(?m)^temporal +ok`, node(t, "shell", "sh", "-c", "kubectl sidecarset check || true"))
	first := imageOf(t, "first", "1")
	assert.NotEqual(t, first, imageOf(t, "second", "2"), "the tag names other content")

	node(t, "down")
	out, err = try(t, "shell", "true")
	require.Error(t, err)
	assert.Equal(t, "node: no node runs: make node starts one\n", out)
	assert.Empty(t, node(t, "down"), "nothing to stop")
}
