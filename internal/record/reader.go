package record

import (
	"sync"

	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Record contains the decoded annotations that record the SidecarSets of a pod.
type Record struct {
	Hashes, HashesWithoutImage Entries
	States                     States
	// Active maps each hot sidecar to its active twin.
	Active map[string]string
	// Resizes maps the name of a SidecarSet to the hash of the content of its last resize of the pod, including a
	// resize in progress.
	Resizes map[string]string
}

// Read decodes the annotations of a pod. If an annotation cannot be parsed, Read returns an error that
// names the annotation.
func Read(annotations map[string]string) (read *Record, err error) {
	read = &Record{}
	if read.Hashes, err = Hashes(annotations); err != nil {
		return nil, err
	}
	if read.HashesWithoutImage, err = decode[Entries](annotations, v1alpha1.HashWithoutImageAnnotation); err != nil {
		return nil, err
	}
	if read.States, err = InPlaceStates(annotations); err != nil {
		return nil, err
	}
	if read.Active, err = ActiveContainers(annotations); err != nil {
		return nil, err
	}
	if read.Resizes, err = decode[map[string]string](annotations, v1alpha1.ResizeAnnotation); err != nil {
		return nil, err
	}
	return read, nil
}

const (
	// maxRecords limits the records that a Reader keeps. A full Reader drops all its records before it adds a
	// record.
	maxRecords = 1 << 10
	// maxRecordBytes is the size of the largest record that a Reader keeps.
	maxRecordBytes = 4 << 10
)

// Reader caches decoded records. Pods that were upgraded in the same second have equal records, and each change
// of the status of a pod leads to another read of the same record. The zero value is ready for concurrent use.
// Callers must not change the records.
type Reader struct {
	mu    sync.Mutex
	known map[written]*Record
}

// written is an encoded record.
type written struct{ hashes, hashesWithoutImage, states, active, resizes string }

// Read returns the same result as the function Read.
func (r *Reader) Read(annotations map[string]string) (*Record, error) {
	w := written{
		annotations[v1alpha1.HashAnnotation], annotations[v1alpha1.HashWithoutImageAnnotation],
		annotations[v1alpha1.InPlaceUpdateStateAnnotation], annotations[v1alpha1.WorkingHotUpgradeContainerAnnotation],
		annotations[v1alpha1.ResizeAnnotation],
	}
	r.mu.Lock()
	known := r.known[w]
	r.mu.Unlock()
	if known != nil {
		return known, nil
	}
	read, err := Read(annotations)
	if err != nil || len(w.hashes)+len(w.hashesWithoutImage)+len(w.states)+len(w.active)+len(w.resizes) > maxRecordBytes {
		return read, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxRecords {
		r.known = map[written]*Record{}
	}
	r.known[w] = read
	return read, nil
}
