package codec

import (
	"crypto/cipher"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/clock"
)

// Encrypted payloads have this metadata, as in the samples of Temporal.
const (
	encrypted     = "binary/encrypted"
	metadataKeyID = "encryption-key-id"
)

const (
	// readInterval is the age at which keys are read again.
	readInterval = 10 * time.Second
	// minReadInterval is the age at which a payload with an unknown key id causes another read of the keys.
	minReadInterval = time.Second
)

// Codec encrypts payloads with AES-256-GCM and one key, and decrypts payloads with any of several keys. Codec
// implements converter.PayloadCodec.
type Codec struct {
	// Log receives a message when the key for encryption changes, and when the keys cannot be read again. Set
	// Log before the first use of the Codec.
	Log logr.Logger

	options Options
	clock   clock.PassiveClock

	mu     sync.Mutex
	keys   *keyring
	readAt time.Time
	// readErr is the error of the latest read. After an error, the previous keys stay in use.
	readErr error
}

// Open reads the keys and returns a Codec, or nil if all options are empty. If a later read of the keys
// fails, the previous keys stay in use.
func Open(options Options) (*Codec, error) { return open(options, clock.RealClock{}) }

func open(options Options, clock clock.PassiveClock) (*Codec, error) {
	if options == (Options{}) {
		return nil, nil
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	keys, err := options.read()
	if err != nil {
		return nil, err
	}
	return &Codec{options: options, clock: clock, keys: keys, readAt: clock.Now()}, nil
}

// Encrypts reports whether a key for encryption is set.
func (c *Codec) Encrypts() bool { return c.options.KeyID != "" || c.options.KeyIDFile != "" }

// Encode encrypts payloads if a key for encryption is set. Nil payloads are not encrypted.
func (c *Codec) Encode(payloads []*common.Payload) ([]*common.Payload, error) {
	keys := c.keysOf(readInterval)
	if keys.encrypting == "" {
		return payloads, nil
	}
	result := make([]*common.Payload, len(payloads))
	for i, payload := range payloads {
		if string(payload.GetMetadata()[converter.MetadataEncoding]) == converter.MetadataEncodingNil {
			// Temporal removes a memo whose payload is nil, and cannot recognize an encrypted nil payload.
			result[i] = payload
			continue
		}
		plain, err := proto.Marshal(payload)
		if err != nil {
			return nil, fmt.Errorf("encode a payload: %w", err)
		}
		result[i] = &common.Payload{
			Metadata: map[string][]byte{converter.MetadataEncoding: []byte(encrypted), metadataKeyID: []byte(keys.encrypting)},
			Data:     keys.ciphers[keys.encrypting].Seal(nil, nil, plain, nil),
		}
	}
	return result, nil
}

// IsEncrypted reports whether the metadata of a payload marks the payload as encrypted, by a Codec or as in
// the samples of Temporal.
func IsEncrypted(payload *common.Payload) bool {
	return string(payload.GetMetadata()[converter.MetadataEncoding]) == encrypted
}

// Decode decrypts the encrypted payloads, and returns other payloads unchanged. Decode fails if the key of a
// payload is missing or wrong.
func (c *Codec) Decode(payloads []*common.Payload) ([]*common.Payload, error) {
	result := make([]*common.Payload, len(payloads))
	for i, payload := range payloads {
		if !IsEncrypted(payload) {
			result[i] = payload
			continue
		}
		id := string(payload.GetMetadata()[metadataKeyID])
		key, err := c.key(id)
		if err != nil {
			return nil, err
		}
		plain, err := key.Open(nil, nil, payload.GetData(), nil)
		if err != nil {
			return nil, fmt.Errorf("a payload cannot be decrypted with key %.64q of %s: the content of the key or the payload has changed", id, c.options.KeyDir)
		}
		result[i] = &common.Payload{}
		if err := proto.Unmarshal(plain, result[i]); err != nil {
			return nil, fmt.Errorf("a payload that was encrypted with key %.64q cannot be decoded: %w", id, err)
		}
	}
	return result, nil
}

// key returns the key of an id. If the id is unknown, key reads the files again, at most once per
// minReadInterval.
func (c *Codec) key(id string) (cipher.AEAD, error) {
	keys := c.keysOf(readInterval)
	if keys.ciphers[id] == nil {
		keys = c.keysOf(minReadInterval)
	}
	if key := keys.ciphers[id]; key != nil {
		return key, nil
	}
	return nil, fmt.Errorf("a payload is encrypted with key %.64q, which is not in %s (found: %s): add its file, no restart is needed", id, c.options.KeyDir, keys.ids())
}

// keysOf returns the keys, and reads the keys again if the last read is older than maxAge. If the read fails,
// keysOf returns the previous keys.
func (c *Codec) keysOf(maxAge time.Duration) *keyring {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if now.Sub(c.readAt) < maxAge {
		return c.keys
	}
	c.readAt = now
	keys, err := c.options.read()
	if err != nil {
		if c.readErr == nil || c.readErr.Error() != err.Error() {
			c.Log.Error(err, "cannot read the payload keys again; the previous keys stay in use")
		}
		c.readErr = err
		return c.keys
	}
	if keys.encrypting != c.keys.encrypting {
		c.Log.Info("payloads are now encrypted with another key", "key", keys.encrypting, "before", c.keys.encrypting)
	}
	c.keys, c.readErr = keys, nil
	return keys
}

// DataConverter returns a data converter for clients and activities. For a payload that cannot be decoded, the
// data converter returns an error. For a nil codec, DataConverter returns the default converter of the SDK.
func (c *Codec) DataConverter() converter.DataConverter {
	if c == nil {
		return converter.GetDefaultDataConverter()
	}
	return converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), c)
}

// WorkflowDataConverter returns a data converter for workers and replayers. A payload that cannot be decoded
// causes a panic. The panic fails the workflow task, and Temporal retries the task. If decoding returned an
// error, the workflow would receive the error as the result of a call. In addition, the SDK drops signals that
// cannot be decoded.
func (c *Codec) WorkflowDataConverter() converter.DataConverter {
	if c == nil {
		return converter.GetDefaultDataConverter()
	}
	return converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), panicking{c})
}

type panicking struct{ *Codec }

// Decode implements converter.PayloadCodec.
func (p panicking) Decode(payloads []*common.Payload) ([]*common.Payload, error) {
	decoded, err := p.Codec.Decode(payloads)
	if err != nil {
		panic(err)
	}
	return decoded, nil
}
