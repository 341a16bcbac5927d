package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// makeKeys writes the payload key a, and returns the directory of the key.
func makeKeys(dir string) (string, error) {
	keys := filepath.Join(dir, "keys")
	if err := os.Mkdir(keys, 0o700); err != nil {
		return "", err
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return keys, os.WriteFile(filepath.Join(keys, "a"), []byte(base64.StdEncoding.EncodeToString(key)), 0o600)
}

// encrypting replaces the operator and the worker by processes that encrypt payloads, until the test ends.
func encrypting(t *testing.T) {
	t.Helper()
	usual, other := []string{"operator", "worker"}, []string{"operator-encrypting", "worker-encrypting"}
	for _, name := range usual {
		require.NoError(t, stack.Stop(name))
	}
	t.Cleanup(func() {
		for _, name := range other {
			assert.NoError(t, stack.Stop(name))
		}
		for _, name := range usual {
			assert.NoError(t, stack.StartAgain(context.WithoutCancel(t.Context()), name))
		}
	})
	for _, name := range other {
		_, err := stack.StartRole(t.Context(), name, "--temporal-payload-key-dir="+stack.keys, "--temporal-payload-key-id=a")
		require.NoError(t, err)
	}
}

func TestEncryptedRunsAreShownWithTheKeys(t *testing.T) {
	encrypting(t)
	scenario(t, "secret")
	freeze(t, "secret")
	setImage(t, "secret", "agent:v2")
	withKeys := func(args ...string) []string {
		return append(args, "--temporal-payload-key-dir="+stack.keys, "--temporal-payload-key-id=a")
	}
	eventually(t, withKeys("status", "secret"), "Refused, Invalid\n", "writes rejected")
	assert.Contains(t, shows(t, withKeys("why", "secret")...), "is Refused: Invalid")
	without := shows(t, "status", "secret")
	assert.Contains(t, without, "0 of 6 updated", "what the cluster knows")
	assert.Contains(t, without, "if the run is encrypted, name the keys with --temporal-payload-key-dir")

	assert.Contains(t, shows(t, withKeys("pause", "secret", "--reason=in confidence")...), "sidecarset/secret paused")
	assert.Regexp(t, `admin +paused +in confidence`, shows(t, withKeys("history", "secret")...))
	without = shows(t, "history", "secret")
	assert.NotContains(t, without, "in confidence")
	assert.Contains(t, without, "Pauses and resumes are incomplete: the sender and the reason of pause in run ")
	assert.Contains(t, without, "payload encoding is not supported; if the run is encrypted, name the keys with --temporal-payload-key-dir")

	_, err := sidecarset(t, "pause", "secret", "--temporal-payload-key-id=a")
	require.ErrorContains(t, err, "no directory of keys: set --temporal-payload-key-dir")
	t.Setenv("TEMPORAL_PAYLOAD_KEY_DIR", stack.keys)
	t.Setenv("TEMPORAL_PAYLOAD_KEY_ID", "a")
	assert.Contains(t, shows(t, "resume", "secret"), "sidecarset/secret resumed")
	assert.Contains(t, shows(t, "history", "secret"), "in confidence")
}
