package codec

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// keySize is the key size of AES-256, in bytes.
const keySize = 32

// These environment variables replace empty options. The temporal CLI does not read these variables.
const (
	keyDirVariable    = "TEMPORAL_PAYLOAD_KEY_DIR"
	keyIDVariable     = "TEMPORAL_PAYLOAD_KEY_ID"
	keyIDFileVariable = "TEMPORAL_PAYLOAD_KEY_ID_FILE"
)

// Options contains the paths of the keys.
type Options struct {
	// KeyDir is a directory with a file for each key, such as a mounted Secret. The file name is
	// the id of the key. The content is 32 random bytes in base64. A file with a leading dot in
	// its name is not a key.
	KeyDir string
	// KeyID is the id of the key for encryption. KeyIDFile is a file that contains this id instead, for
	// example .current in KeyDir. If KeyID and KeyIDFile are empty, payloads are only decrypted.
	KeyID, KeyIDFile string
}

// AddTo adds the flags of the keys.
func (o *Options) AddTo(set *pflag.FlagSet) {
	set.StringVar(&o.KeyDir, "temporal-payload-key-dir", "", "`directory` of the keys of payloads, one file for each key id; changes need no restart (TEMPORAL_PAYLOAD_KEY_DIR)")
	set.StringVar(&o.KeyID, "temporal-payload-key-id", "", "`id` of the key that encrypts payloads (TEMPORAL_PAYLOAD_KEY_ID); empty: payloads are not encrypted")
	set.StringVar(&o.KeyIDFile, "temporal-payload-key-id-file", "", "`file` with the id of the key that encrypts payloads, such as .current in the directory of the keys; changes need no restart (TEMPORAL_PAYLOAD_KEY_ID_FILE)")
}

// WithVariables returns the options, in which the environment variables replace empty options. The variables
// of the key id apply only if KeyID and KeyIDFile are both empty.
func (o Options) WithVariables(lookup func(string) (string, bool)) Options {
	if o.KeyDir == "" {
		o.KeyDir, _ = lookup(keyDirVariable)
	}
	if o.KeyID == "" && o.KeyIDFile == "" {
		o.KeyID, _ = lookup(keyIDVariable)
		o.KeyIDFile, _ = lookup(keyIDFileVariable)
	}
	return o
}

func (o Options) check() error {
	switch {
	case o.KeyDir == "":
		return errors.New("a key for encryption is set, but no directory of keys: set --temporal-payload-key-dir (" + keyDirVariable + ")")
	case o.KeyID != "" && o.KeyIDFile != "":
		return errors.New("the id of the key for encryption and a file with it are set: use one of --temporal-payload-key-id and " +
			"--temporal-payload-key-id-file (" + keyIDVariable + ", " + keyIDFileVariable + ")")
	}
	return nil
}

// keyring contains the keys that one read of the key directory returned.
type keyring struct {
	ciphers map[string]cipher.AEAD
	// encrypting is the id of the key for encryption. The id is empty if payloads are only
	// decrypted.
	encrypting string
}

func (k *keyring) ids() string { return strings.Join(slices.Sorted(maps.Keys(k.ciphers)), ", ") }

// read reads all keys and the id of the key for encryption. Errors contain no part of a key.
func (o Options) read() (*keyring, error) {
	entries, err := os.ReadDir(o.KeyDir)
	if err != nil {
		return nil, fmt.Errorf("read the directory of payload keys: %w (correct --temporal-payload-key-dir or %s)", err, keyDirVariable)
	}
	k := &keyring{ciphers: map[string]cipher.AEAD{}, encrypting: o.KeyID}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		if k.ciphers[entry.Name()], err = readKey(filepath.Join(o.KeyDir, entry.Name())); err != nil {
			return nil, err
		}
	}
	if o.KeyIDFile != "" {
		id, err := os.ReadFile(o.KeyIDFile)
		if err != nil {
			return nil, fmt.Errorf("read the id of the payload key for encryption: %w", err)
		}
		if k.encrypting = string(bytes.TrimSpace(id)); k.encrypting == "" {
			return nil, fmt.Errorf("%s is empty: write the id of a key of %s into it", o.KeyIDFile, o.KeyDir)
		}
	}
	if _, ok := k.ciphers[k.encrypting]; !ok && k.encrypting != "" {
		return nil, fmt.Errorf("payload key %.64q for encryption is not in %s (found: %s): add its file, or select another key", k.encrypting, o.KeyDir, k.ids())
	}
	return k, nil
}

func readKey(path string) (cipher.AEAD, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a payload key: %w", err)
	}
	key, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("%s is not a payload key: it must contain %d random bytes in base64, as printed by openssl rand -base64 %d", path, keySize, keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("payload key %s: %w", path, err)
	}
	// The cipher prepends a random nonce.
	sealed, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("payload key %s: %w", path, err)
	}
	return sealed, nil
}
