package protocol

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Fingerprint identifies a pod in histories, where thousands of names would not fit.
// A pod with the fingerprint of a rejected pod is only upgraded later.
type Fingerprint uint32

// FingerprintOf returns the fingerprint of a pod's uid.
func FingerprintOf(uid types.UID) Fingerprint {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid))
	return Fingerprint(hash.Sum32())
}

// Fingerprints is an ordered list of fingerprints of pods. JSON encodes the list as one base64
// string, with four bytes for each fingerprint.
type Fingerprints []Fingerprint

// Set returns them for look-ups.
func (f Fingerprints) Set() map[Fingerprint]bool {
	set := make(map[Fingerprint]bool, len(f))
	for _, one := range f {
		set[one] = true
	}
	return set
}

// Without returns those that are not in the map, in order.
func (f Fingerprints) Without(set map[Fingerprint]bool) (left Fingerprints) {
	for _, one := range f {
		if !set[one] {
			left = append(left, one)
		}
	}
	return left
}

// MarshalJSON writes them as bytes.
func (f Fingerprints) MarshalJSON() ([]byte, error) {
	packed := make([]byte, 0, 4*len(f))
	for _, one := range f {
		packed = binary.BigEndian.AppendUint32(packed, uint32(one))
	}
	return json.Marshal(packed)
}

// UnmarshalJSON reads them back.
func (f *Fingerprints) UnmarshalJSON(text []byte) error {
	var packed []byte
	if err := json.Unmarshal(text, &packed); err != nil {
		return fmt.Errorf("decode fingerprints: %w", err)
	}
	if len(packed)%4 != 0 {
		return fmt.Errorf("decode fingerprints: %d bytes are not four each", len(packed))
	}
	*f = nil
	for four := range slices.Chunk(packed, 4) {
		*f = append(*f, Fingerprint(binary.BigEndian.Uint32(four)))
	}
	return nil
}

// Rejected are pods whose newest write was rejected, the least recently tried first.
type Rejected struct {
	Pods Fingerprints `json:"pods,omitempty"`
	// Again is how many of the first may be retried, after all other pods.
	Again int `json:"again,omitempty"`
}

// Rejections are rejected pods, and the time of their next retry.
type Rejections struct {
	Pods    Fingerprints  `json:"pods,omitempty"`
	Backoff time.Duration `json:"backoff,omitempty"`
	RetryAt time.Time     `json:"retryAt,omitzero"`
}
