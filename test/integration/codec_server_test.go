package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdk "go.temporal.io/sdk/client"
	"go.temporal.io/sdk/testsuite"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/dev/devserver"
	outrigger "github.com/outrigger/outrigger/temporal"
	"github.com/outrigger/outrigger/temporal/codec"
)

// sealedWords is a part of the input of sealedRun.
const sealedWords = "words-of-the-pause"

// makeKey writes the payload key a into a new directory, and returns options with this key.
func makeKey(t *testing.T) codec.Options {
	t.Helper()
	keys, key := t.TempDir(), make([]byte, 32)
	_, _ = rand.Read(key)
	require.NoError(t, os.WriteFile(filepath.Join(keys, "a"), []byte(base64.StdEncoding.EncodeToString(key)), 0o600))
	return codec.Options{KeyDir: keys, KeyID: "a"}
}

// sealedRun is an encrypted run without a worker, on a separate server.
type sealedRun struct {
	t       *testing.T
	keys    codec.Options
	address string
	run     sdk.WorkflowRun
}

func startSealedRun(t *testing.T, change func(*testsuite.DevServerOptions)) *sealedRun {
	t.Helper()
	var options testsuite.DevServerOptions
	if change != nil {
		change(&options)
	}
	server := devserver.Start(t, filepath.Join(bin, "temporal"), options)
	r := &sealedRun{t: t, keys: makeKey(t), address: server.FrontendHostPort()}
	opened, err := codec.Open(r.keys)
	require.NoError(t, err)
	c, err := outrigger.NewLazyClient(outrigger.Options{Address: r.address, Namespace: sdk.DefaultNamespace, Codec: opened}, logr.Discard())
	require.NoError(t, err)
	t.Cleanup(c.Close)
	r.run, err = c.ExecuteWorkflow(t.Context(), sdk.StartWorkflowOptions{ID: protocol.WorkflowID("mesh", "uid"), TaskQueue: "nobody"}, protocol.RolloutWorkflow,
		protocol.RolloutInput{SidecarSet: protocol.SetReference{Name: "mesh", UID: "uid"}, Generation: 1, Pause: &protocol.Pause{Reason: sealedWords}})
	require.NoError(t, err)
	return r
}

// freeAddress returns an address with a free port.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// serveCodec runs outrigger codec-server at address until the test ends.
func (r *sealedRun) serveCodec(address string, args ...string) {
	r.t.Helper()
	var said bytes.Buffer
	server := exec.CommandContext(context.WithoutCancel(r.t.Context()), filepath.Join(bin, "outrigger"),
		append([]string{"codec-server", "--temporal-payload-key-dir=" + r.keys.KeyDir, "--bind-address=" + address}, args...)...)
	server.Stderr = &said
	require.NoError(r.t, server.Start())
	r.t.Cleanup(func() {
		assert.NoError(r.t, server.Process.Signal(syscall.SIGTERM))
		assert.NoError(r.t, server.Wait(), said.String())
	})
	require.Eventually(r.t, func() bool {
		answer, err := http.Get("http://" + address + "/healthz")
		return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, 20*time.Second, 20*time.Millisecond)
}

// show returns the output of temporal workflow show for the run.
func (r *sealedRun) show(args ...string) (string, error) {
	r.t.Helper()
	out, err := exec.CommandContext(r.t.Context(), filepath.Join(bin, "temporal"), append([]string{
		"workflow", "show", "--address", r.address, "--workflow-id", r.run.GetID(), "--detailed",
	}, args...)...).CombinedOutput()
	return string(out), err
}

func TestTheTemporalCLIReadsEncryptedRunsThroughTheCodecServer(t *testing.T) {
	r := startSealedRun(t, nil)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("the-token"), 0o600))
	address := freeAddress(t)
	r.serveCodec(address, "--token-file="+token)
	endpoint := "http://" + address

	for _, with := range []string{"--codec-auth=Bearer the-token", "--codec-header=Authorization=Bearer the-token"} {
		shown, err := r.show("--codec-endpoint", endpoint, with)
		require.NoError(t, err, shown)
		assert.Contains(t, shown, sealedWords)
	}
	shown, err := r.show()
	require.NoError(t, err, shown)
	assert.Contains(t, shown, protocol.RolloutWorkflow, "the history is there")
	assert.NotContains(t, shown, sealedWords)
	// The CLI retries after every error, until --command-timeout.
	shown, err = r.show("--codec-endpoint", endpoint, "--codec-auth=Bearer another", "--command-timeout=5s")
	require.Error(t, err, shown)
	assert.NotContains(t, shown, sealedWords)
}
