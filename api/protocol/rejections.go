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

// Fingerprint is a short hash of the uid of a pod. Histories contain fingerprints instead of uids, because
// thousands of uids would be too large. If another pod has the same fingerprint as a rejected pod, only the
// upgrade of the other pod is delayed.
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

// Set returns the fingerprints as a set for lookups.
func (f Fingerprints) Set() map[Fingerprint]bool {
	set := make(map[Fingerprint]bool, len(f))
	for _, one := range f {
		set[one] = true
	}
	return set
}

// Without returns the fingerprints that are not in the set, in the same order.
func (f Fingerprints) Without(set map[Fingerprint]bool) (left Fingerprints) {
	for _, one := range f {
		if !set[one] {
			left = append(left, one)
		}
	}
	return left
}

// MarshalJSON encodes the fingerprints as bytes.
func (f Fingerprints) MarshalJSON() ([]byte, error) {
	packed := make([]byte, 0, 4*len(f))
	for _, one := range f {
		packed = binary.BigEndian.AppendUint32(packed, uint32(one))
	}
	return json.Marshal(packed)
}

// UnmarshalJSON decodes the bytes that MarshalJSON wrote.
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

// Rejected contains the pods whose last write was rejected. The pod with the oldest attempt comes first.
type Rejected struct {
	Pods Fingerprints `json:"pods,omitempty"`
	// Again is the number of pods at the start of Pods whose writes may be retried. The run retries these
	// writes after the upgrades of all other pods.
	Again int `json:"again,omitempty"`
}

// Rejections contains rejected pods. RetryAt is the time of the next retry. Backoff is the wait before this
// retry.
type Rejections struct {
	Pods    Fingerprints  `json:"pods,omitempty"`
	Backoff time.Duration `json:"backoff,omitempty"`
	RetryAt time.Time     `json:"retryAt,omitzero"`
}
