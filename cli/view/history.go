package view

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/record"
	"github.com/outrigger/outrigger/internal/revision"
)

// History is what a set has been, and who changed it, as far as that is known.
type History struct {
	Name      string        `json:"name"`
	Revisions []RevisionRow `json:"revisions"`
	Runs      []RunRow      `json:"runs,omitempty"`
	// RunsUnknown says why runs are not listed.
	RunsUnknown string   `json:"runsUnknown,omitempty"`
	Changes     []Change `json:"changes,omitempty"`
	// ChangesUnknown says why pauses and resumes are missing, or who sent them.
	ChangesUnknown string `json:"changesUnknown,omitempty"`
}

// RevisionRow is a version that is recorded.
type RevisionRow struct {
	Number        int64     `json:"number"`
	Name          string    `json:"name"`
	Current       bool      `json:"current,omitempty"`
	CustomVersion string    `json:"customVersion,omitempty"`
	Images        []Image   `json:"images,omitempty"`
	Pods          int       `json:"pods"`
	Created       time.Time `json:"created"`
}

// RunRow is a workflow run.
type RunRow struct {
	RunID      string         `json:"runID"`
	Generation int64          `json:"generation,omitempty"`
	Status     string         `json:"status"`
	Phase      protocol.Phase `json:"phase,omitempty"`
	Started    time.Time      `json:"started"`
	// Ended is nil while the run is open.
	Ended *time.Time `json:"ended,omitempty"`
}

// Change is something that somebody did to a set or its run.
type Change struct {
	At  time.Time `json:"at"`
	Who string    `json:"who,omitempty"`
	// What is one of: the last write of spec by a field manager, pause, resume.
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
}

// NewHistory lists the newest first. changes are those that the runs tell; the set's own
// are added.
func NewHistory(set *v1alpha1.SidecarSet, sorted []*appsv1.ControllerRevision, pods []*corev1.Pod, runs []RunRow, changes []Change) (*History, error) {
	known := newHistory(set, sorted)
	held := map[string]int{}
	for _, pod := range pods {
		// Annotations that cannot be read name no revision.
		entries, err := record.Hashes(pod.Annotations)
		if err != nil {
			continue
		}
		if entry, ok := entries[set.Name]; ok {
			held[known.held(entry)]++
		}
	}
	h := &History{Name: set.Name, Runs: runs, Changes: append(writes(set), changes...), Revisions: []RevisionRow{}}
	for _, one := range slices.Backward(sorted) {
		h.Revisions = append(h.Revisions, RevisionRow{
			Number: one.Revision, Name: one.Name, Current: one.Name == known.current, Images: recordedImages(one), Pods: held[one.Name],
			CustomVersion: strings.Join(revision.CustomVersions(one), ","), Created: one.CreationTimestamp.Time,
		})
	}
	slices.SortFunc(h.Runs, func(a, b RunRow) int { return b.Started.Compare(a.Started) })
	slices.SortStableFunc(h.Changes, func(a, b Change) int { return b.At.Compare(a.At) })
	return h, nil
}

// writes are the last writes of spec that the API server remembers, one for each manager.
func writes(set *v1alpha1.SidecarSet) []Change {
	var all []Change
	for _, entry := range set.ManagedFields {
		if entry.Time == nil || entry.FieldsV1 == nil || entry.Subresource != "" || !strings.Contains(entry.FieldsV1.GetRawString(), `"f:spec"`) {
			continue
		}
		all = append(all, Change{At: entry.Time.Time, Who: entry.Manager, What: "wrote spec", Why: "by " + strings.ToLower(string(entry.Operation))})
	}
	return all
}

// Write writes three tables.
func (h *History) Write(out io.Writer, t Text) error {
	rows := [][]string{{"REVISION", "NAME", "CURRENT", "VERSION", "PODS", "AGE", "IMAGES"}}
	for i := range h.Revisions {
		r := &h.Revisions[i]
		current := ""
		if r.Current {
			current = "yes"
		}
		rows = append(rows, []string{fmt.Sprint(r.Number), r.Name, orDash(current), orDash(r.CustomVersion), fmt.Sprint(r.Pods), age(t.Now, &r.Created), joinImages(r.Images)})
	}
	if err := table(out, rows); err != nil {
		return err
	}
	if err := h.writeRuns(out, t); err != nil {
		return err
	}
	return h.writeChanges(out, t)
}

func (h *History) writeChanges(out io.Writer, t Text) error {
	if len(h.Changes) == 0 && h.ChangesUnknown == "" {
		return nil
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	if h.ChangesUnknown != "" {
		if _, err := fmt.Fprintln(out, "Not all is known of pauses and resumes: "+h.ChangesUnknown); err != nil {
			return err
		}
	}
	if len(h.Changes) == 0 {
		return nil
	}
	rows := [][]string{{"AGE", "WHO", "WHAT", "WHY"}}
	for i := range h.Changes {
		c := &h.Changes[i]
		rows = append(rows, []string{age(t.Now, &c.At), orDash(c.Who), c.What, orDash(c.Why)})
	}
	return table(out, rows)
}

func (h *History) writeRuns(out io.Writer, t Text) error {
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	if h.RunsUnknown != "" {
		_, err := fmt.Fprintln(out, "Runs are not listed: "+h.RunsUnknown)
		return err
	}
	rows := [][]string{{"GENERATION", "RUN", "STATUS", "PHASE", "STARTED", "TOOK"}}
	for i := range h.Runs {
		r := &h.Runs[i]
		end := t.Now
		if r.Ended != nil {
			end = *r.Ended
		}
		rows = append(rows, []string{fmt.Sprint(r.Generation), r.RunID, r.Status, orDash(string(r.Phase)), age(t.Now, &r.Started), age(end, &r.Started)})
	}
	return table(out, rows)
}
