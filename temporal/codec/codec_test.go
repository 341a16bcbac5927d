package codec

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	clocktesting "k8s.io/utils/clock/testing"
)

// writeKey writes a new key into a file with the name id, and returns the text of the key.
func writeKey(t *testing.T, dir, id string) string {
	key := make([]byte, keySize)
	_, _ = rand.Read(key)
	text := base64.StdEncoding.EncodeToString(key)
	write(t, filepath.Join(dir, id), text+"\n")
	return text
}

func write(t *testing.T, path, text string) {
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// opened returns a codec with its clock and its log.
func opened(t *testing.T, options Options) (*Codec, *clocktesting.FakePassiveClock, *bytes.Buffer) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	c, err := open(options, clock)
	require.NoError(t, err)
	var log bytes.Buffer
	c.Log = logr.FromSlogHandler(slog.NewTextHandler(&log, nil))
	return c, clock, &log
}

func encode(t *testing.T, c *Codec, value any) *common.Payload {
	payload, err := c.DataConverter().ToPayload(value)
	require.NoError(t, err)
	return payload
}

func keyOf(payload *common.Payload) string { return string(payload.Metadata[metadataKeyID]) }

func TestPayloadsAreEncrypted(t *testing.T) {
	dir := t.TempDir()
	writeKey(t, dir, "a")
	c, _, _ := opened(t, Options{KeyDir: dir, KeyID: "a"})
	one, two := encode(t, c, "words"), encode(t, c, "words")
	assert.Equal(t, "binary/encrypted", string(one.Metadata["encoding"]))
	assert.Equal(t, "a", string(one.Metadata["encryption-key-id"]))
	assert.NotContains(t, one.String(), "words")
	assert.NotEqual(t, one.Data, two.Data, "each has a nonce of its own")
	var got string
	require.NoError(t, c.DataConverter().FromPayload(one, &got))
	assert.Equal(t, "words", got)

	one.Data[20] ^= 1
	require.ErrorContains(t, c.DataConverter().FromPayload(one, &got), `a payload cannot be decrypted with key "a" of `+dir)
	one.Data = one.Data[:3]
	require.ErrorContains(t, c.DataConverter().FromPayload(one, &got), "cannot be decrypted")
}

func TestPlainPayloadsAreDecodedAndNullStaysPlain(t *testing.T) {
	dir := t.TempDir()
	writeKey(t, dir, "a")
	c, _, _ := opened(t, Options{KeyDir: dir, KeyID: "a"})
	plain, err := converter.GetDefaultDataConverter().ToPayload("words")
	require.NoError(t, err)
	var got string
	require.NoError(t, c.DataConverter().FromPayload(plain, &got))
	assert.Equal(t, "words", got)
	null, err := converter.GetDefaultDataConverter().ToPayload(nil)
	require.NoError(t, err)
	assert.Equal(t, null.String(), encode(t, c, nil).String())

	var none *Codec
	assert.Equal(t, plain.String(), encode(t, none, "words").String())
	decrypts, _, _ := opened(t, Options{KeyDir: dir})
	assert.False(t, decrypts.Encrypts())
	assert.Equal(t, plain.String(), encode(t, decrypts, "words").String())
	require.NoError(t, decrypts.DataConverter().FromPayload(encode(t, c, "secret"), &got))
	assert.Equal(t, "secret", got)
}

func TestKeysRotateWithoutARestart(t *testing.T) {
	dir := t.TempDir()
	current := filepath.Join(dir, ".current")
	writeKey(t, dir, "a")
	write(t, current, "a\n")
	c, clock, log := opened(t, Options{KeyDir: dir, KeyIDFile: current})
	reader, readers, _ := opened(t, Options{KeyDir: dir})
	old := encode(t, c, "old")

	writeKey(t, dir, "b")
	write(t, current, "b")
	assert.Equal(t, "a", keyOf(encode(t, c, "")), "within the interval")
	clock.SetTime(clock.Now().Add(readInterval))
	rotated := encode(t, c, "new")
	assert.Equal(t, "b", keyOf(rotated))
	assert.Contains(t, log.String(), "payloads are now encrypted with another key")

	// The codec reads an unknown key immediately, but at most once per minReadInterval.
	var got string
	require.ErrorContains(t, reader.DataConverter().FromPayload(rotated, &got), `encrypted with key "b", which is not in `+dir+" (found: a): add its file")
	readers.SetTime(readers.Now().Add(minReadInterval))
	for payload, want := range map[*common.Payload]string{old: "old", rotated: "new"} {
		for _, each := range []*Codec{c, reader} {
			require.NoError(t, each.DataConverter().FromPayload(payload, &got))
			assert.Equal(t, want, got)
		}
	}

	require.NoError(t, os.Remove(filepath.Join(dir, "a")))
	clock.SetTime(clock.Now().Add(readInterval))
	require.ErrorContains(t, c.DataConverter().FromPayload(old, &got), `encrypted with key "a", which is not in `+dir+" (found: b)")
	assert.Panics(t, func() { _ = c.WorkflowDataConverter().FromPayload(old, &got) }, "a workflow must not see it as a result")
}

func TestUnusableChangesLeaveTheKeysThatWereRead(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"no id":              func(t *testing.T, dir string) { write(t, filepath.Join(dir, ".current"), " ") },
		"unknown id":         func(t *testing.T, dir string) { write(t, filepath.Join(dir, ".current"), "b") },
		"no file of the id":  func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, ".current"))) },
		"no key":             func(t *testing.T, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "a"))) },
		"half a key":         func(t *testing.T, dir string) { write(t, filepath.Join(dir, "b"), "c2hvcnQ=") },
		"the directory went": func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeKey(t, dir, "a")
			write(t, filepath.Join(dir, ".current"), "a")
			c, clock, log := opened(t, Options{KeyDir: dir, KeyIDFile: filepath.Join(dir, ".current")})
			spoil(t, dir)
			for range 3 {
				clock.SetTime(clock.Now().Add(readInterval))
				assert.Equal(t, "a", keyOf(encode(t, c, "never plain")))
			}
			assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("cannot read the payload keys again")), "said once")
		})
	}
}

func TestUnusableKeysAreSaidAtTheStart(t *testing.T) {
	dir := t.TempDir()
	writeKey(t, dir, "a")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "..data"), 0o700))
	for _, test := range []struct {
		name    string
		options Options
		want    string
	}{
		{"no directory", Options{KeyID: "a"}, "set --temporal-payload-key-dir (TEMPORAL_PAYLOAD_KEY_DIR)"},
		{"absent", Options{KeyDir: "/absent"}, "read the directory of payload keys: open /absent: no such file or directory (correct --temporal-payload-key-dir or TEMPORAL_PAYLOAD_KEY_DIR)"},
		{"two ids", Options{KeyDir: dir, KeyID: "a", KeyIDFile: "f"}, "use one of --temporal-payload-key-id and --temporal-payload-key-id-file"},
		{"unknown id", Options{KeyDir: dir, KeyID: "b"}, `payload key "b" for encryption is not in ` + dir + " (found: a): add its file, or select another key"},
		{"absent file of the id", Options{KeyDir: dir, KeyIDFile: "/absent"}, "read the id of the payload key for encryption: open /absent"},
	} {
		_, err := Open(test.options)
		require.ErrorContains(t, err, test.want, test.name)
	}
	key := writeKey(t, dir, "b")
	for name, text := range map[string]string{"not base64": "!" + key[1:], "too short": key[:40] + "AA==", "empty": "", "raw": string(make([]byte, keySize))} {
		write(t, filepath.Join(dir, "b"), text)
		_, err := Open(Options{KeyDir: dir, KeyID: "a"})
		require.EqualError(t, err, filepath.Join(dir, "b")+" is not a payload key: it must contain 32 random bytes in base64, as printed by openssl rand -base64 32", name)
	}
	none, err := Open(Options{})
	require.NoError(t, err)
	assert.Nil(t, none)
}

func TestFlagsWinOverVariables(t *testing.T) {
	lookup := func(name string) (string, bool) {
		value, ok := map[string]string{keyDirVariable: "dir", keyIDVariable: "id", keyIDFileVariable: "file"}[name]
		return value, ok
	}
	assert.Equal(t, Options{"dir", "id", "file"}, Options{}.WithVariables(lookup))
	assert.Equal(t, Options{"flag", "other", ""}, Options{KeyDir: "flag", KeyID: "other"}.WithVariables(lookup))
	assert.Equal(t, Options{"dir", "", "other"}, Options{KeyIDFile: "other"}.WithVariables(lookup))
}
