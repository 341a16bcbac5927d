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

// keySize is that of AES-256, in bytes.
const keySize = 32

// Variables of the options. The temporal CLI has none for keys.
const (
	keyDirVariable    = "TEMPORAL_PAYLOAD_KEY_DIR"
	keyIDVariable     = "TEMPORAL_PAYLOAD_KEY_ID"
	keyIDFileVariable = "TEMPORAL_PAYLOAD_KEY_ID_FILE"
)

// Options say where the keys are.
type Options struct {
	// KeyDir has a file for each key, such as a mounted Secret: its name is the key's id,
	// its content 32 random bytes in base64. Names with a dot in front are no keys.
	KeyDir string
	// KeyID is the key that encrypts; KeyIDFile holds that id instead, and can be .current
	// in KeyDir. With neither, payloads are only decrypted.
	KeyID, KeyIDFile string
}

// AddTo adds the flags of whoever writes or reads payloads.
func (o *Options) AddTo(set *pflag.FlagSet) {
	set.StringVar(&o.KeyDir, "temporal-payload-key-dir", "", "`directory` of the keys that decrypt payloads, one file for each key id, read again when they change (TEMPORAL_PAYLOAD_KEY_DIR)")
	set.StringVar(&o.KeyID, "temporal-payload-key-id", "", "`id` of the key that encrypts payloads (TEMPORAL_PAYLOAD_KEY_ID); empty: they are not encrypted")
	set.StringVar(&o.KeyIDFile, "temporal-payload-key-id-file", "", "`file` with that id, read again when it changes, such as .current beside the keys (TEMPORAL_PAYLOAD_KEY_ID_FILE)")
}

// WithVariables fills in what is empty from the variables of the environment.
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
		return errors.New("the key that encrypts payloads is named, but no directory of keys: give --temporal-payload-key-dir (" + keyDirVariable + ")")
	case o.KeyID != "" && o.KeyIDFile != "":
		return errors.New("the key that encrypts payloads is named, and a file that names it: give one of --temporal-payload-key-id and " +
			"--temporal-payload-key-id-file (" + keyIDVariable + ", " + keyIDFileVariable + ")")
	}
	return nil
}

// keyring is what the files held when they were read.
type keyring struct {
	ciphers map[string]cipher.AEAD
	// encrypting is the id of the key that encrypts; empty for none.
	encrypting string
}

func (k *keyring) ids() string { return strings.Join(slices.Sorted(maps.Keys(k.ciphers)), ", ") }

// read reads all keys. Its errors quote nothing of a key.
func (o Options) read() (*keyring, error) {
	entries, err := os.ReadDir(o.KeyDir)
	if err != nil {
		return nil, fmt.Errorf("read the directory of payload keys: %w", err)
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
			return nil, fmt.Errorf("read which payload key encrypts: %w", err)
		}
		if k.encrypting = string(bytes.TrimSpace(id)); k.encrypting == "" {
			return nil, fmt.Errorf("%s names no payload key: write the id of one of %s into it", o.KeyIDFile, o.KeyDir)
		}
	}
	if _, ok := k.ciphers[k.encrypting]; !ok && k.encrypting != "" {
		return nil, fmt.Errorf("payload key %.64q is to encrypt, and is not in %s (there: %s): add its file, or name another", k.encrypting, o.KeyDir, k.ids())
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
		return nil, fmt.Errorf("%s is no payload key: it must hold %d random bytes in base64, as openssl rand -base64 %d prints", path, keySize, keySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("payload key %s: %w", path, err)
	}
	// It puts a random nonce in front of what it seals.
	sealed, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("payload key %s: %w", path, err)
	}
	return sealed, nil
}
