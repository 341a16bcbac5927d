package record

import (
	"sync"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Record is what the annotations of a pod say about the sets injected into it.
type Record struct {
	Hashes, HashesWithoutImage Entries
	States                     States
	// Active names the active twin of each hot sidecar.
	Active map[string]string
}

// Read reads the whole record. An annotation that cannot be read is an error that names
// it.
func Read(annotations map[string]string) (read *Record, err error) {
	read = &Record{}
	if read.Hashes, err = Hashes(annotations); err != nil {
		return nil, err
	}
	if read.HashesWithoutImage, err = HashesWithoutImage(annotations); err != nil {
		return nil, err
	}
	if read.States, err = InPlaceStates(annotations); err != nil {
		return nil, err
	}
	if read.Active, err = ActiveContainers(annotations); err != nil {
		return nil, err
	}
	return read, nil
}

const (
	// readerLimit is how many records a Reader remembers before it forgets them all.
	readerLimit = 1 << 10
	// longestKnown is the longest record that is remembered, in bytes.
	longestKnown = 4 << 10
)

// Reader reads records, those that are written alike once: a pod is looked at with each
// change of its status, and pods that were upgraded in one second have the same record.
// The zero value is ready for use, also concurrently. Nobody may change what it returns.
type Reader struct {
	mu    sync.Mutex
	known map[written]*Record
}

// written is a record as it is written.
type written struct{ hashes, hashesWithoutImage, states, active string }

func (w *written) bytes() int {
	return len(w.hashes) + len(w.hashesWithoutImage) + len(w.states) + len(w.active)
}

// Read is the function of the same name.
func (r *Reader) Read(annotations map[string]string) (*Record, error) {
	w := written{
		annotations[v1alpha1.HashAnnotation], annotations[v1alpha1.HashWithoutImageAnnotation],
		annotations[v1alpha1.InPlaceUpdateStateAnnotation], annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation],
	}
	r.mu.Lock()
	known := r.known[w]
	r.mu.Unlock()
	if known != nil {
		return known, nil
	}
	read, err := Read(annotations)
	if err != nil || w.bytes() > longestKnown {
		return read, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= readerLimit {
		r.known = map[written]*Record{}
	}
	r.known[w] = read
	return read, nil
}
