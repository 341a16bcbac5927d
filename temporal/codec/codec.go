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

// Metadata of encrypted payloads, as in Temporal's samples.
const (
	encrypted     = "binary/encrypted"
	metadataKeyID = "encryption-key-id"
)

const (
	// readInterval is how long keys are used before their files are read again.
	readInterval = 10 * time.Second
	// minReadInterval bounds the reads that payloads with unknown keys cause.
	minReadInterval = time.Second
)

// Codec encrypts payloads with AES-256-GCM under one of several keys, and decrypts those of
// all keys. Payloads that are not encrypted are decoded as they are. It implements
// converter.PayloadCodec.
type Codec struct {
	// Log hears of keys that changed and cannot be used. Set it before the first use.
	Log logr.Logger

	options Options
	clock   clock.PassiveClock

	mu     sync.Mutex
	keys   *keyring
	readAt time.Time
	// readErr is that of the newest read, after which older keys went on.
	readErr error
}

// Open reads the keys; nil if the options name none. Keys that cannot be read are an error
// here; later, those that were read before stay in use.
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

// Encrypts reports whether a key is named that encrypts.
func (c *Codec) Encrypts() bool { return c.options.KeyID != "" || c.options.KeyIDFile != "" }

// Encode encrypts payloads, if a key is named that does. It never fails for a key.
func (c *Codec) Encode(payloads []*common.Payload) ([]*common.Payload, error) {
	keys := c.keysOf(readInterval)
	if keys.encrypting == "" {
		return payloads, nil
	}
	result := make([]*common.Payload, len(payloads))
	for i, payload := range payloads {
		if string(payload.GetMetadata()[converter.MetadataEncoding]) == converter.MetadataEncodingNil {
			// It says nothing, and Temporal removes a memo by it.
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

// IsEncrypted reports whether a payload was encrypted by a Codec, or in the way of
// Temporal's samples.
func IsEncrypted(payload *common.Payload) bool {
	return string(payload.GetMetadata()[converter.MetadataEncoding]) == encrypted
}

// Decode decrypts the payloads that are encrypted.
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
			return nil, fmt.Errorf("a payload cannot be decrypted with key %.64q of %s: the key has another content than the one that encrypted it, or the payload was changed", id, c.options.KeyDir)
		}
		result[i] = &common.Payload{}
		if err := proto.Unmarshal(plain, result[i]); err != nil {
			return nil, fmt.Errorf("a payload encrypted with key %.64q holds none: %w", id, err)
		}
	}
	return result, nil
}

// key looks again when it does not know one: it may just have been added.
func (c *Codec) key(id string) (cipher.AEAD, error) {
	keys := c.keysOf(readInterval)
	if keys.ciphers[id] == nil {
		keys = c.keysOf(minReadInterval)
	}
	if key := keys.ciphers[id]; key != nil {
		return key, nil
	}
	return nil, fmt.Errorf("a payload is encrypted with key %.64q, which is not in %s (there: %s): add its file, it is read without a restart", id, c.options.KeyDir, keys.ids())
}

// keysOf returns keys that were read at most maxAge ago, or the newest that could be read.
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
			c.Log.Error(err, "payload keys cannot be read again; those that were read before stay in use")
		}
		c.readErr = err
		return c.keys
	}
	if keys.encrypting != c.keys.encrypting {
		c.Log.Info("payloads are encrypted with another key", "key", keys.encrypting, "before", c.keys.encrypting)
	}
	c.keys, c.readErr = keys, nil
	return keys
}

// DataConverter is for clients and activities: what cannot be decoded is an error. A nil
// codec has the SDK's own.
func (c *Codec) DataConverter() converter.DataConverter {
	if c == nil {
		return converter.GetDefaultDataConverter()
	}
	return converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), c)
}

// WorkflowDataConverter is for workers and replayers: what cannot be decoded is a panic,
// which fails the workflow task, and Temporal tries that again. The workflow would take an
// error for the result of what it asked for, and the SDK drops signals that it cannot decode.
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
