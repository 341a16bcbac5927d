package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
	"github.com/outrigger/outrigger/internal/match"
	"github.com/outrigger/outrigger/internal/revision"
)

// History contains the known revisions, runs and changes of a SidecarSet.
type History struct {
	Name      string        `json:"name"`
	Revisions []RevisionRow `json:"revisions"`
	RunHistory
}

// RunHistory is the history of a SidecarSet in Temporal.
type RunHistory struct {
	Runs []RunRow `json:"runs,omitempty"`
	// RunsUnknown is the reason why runs are not listed.
	RunsUnknown string   `json:"runsUnknown,omitempty"`
	Changes     []Change `json:"changes,omitempty"`
	// ChangesUnknown is the reason why changes, or the senders and reasons of changes, are missing.
	ChangesUnknown string `json:"changesUnknown,omitempty"`
}

// RevisionRow is a recorded revision.
type RevisionRow struct {
	Number        int64     `json:"number"`
	Name          string    `json:"name"`
	Current       bool      `json:"current,omitempty"`
	CustomVersion string    `json:"customVersion,omitempty"`
	Images        []Image   `json:"images,omitempty"`
	Pods          int       `json:"pods"`
	Created       time.Time `json:"created"`
	ChangeCause   string    `json:"changeCause,omitempty"`
}

// RunRow is a workflow run.
type RunRow struct {
	RunID      string         `json:"runID"`
	Generation int64          `json:"generation,omitempty"`
	Status     string         `json:"status"`
	Phase      protocol.Phase `json:"phase,omitempty"`
	// Images contains the images that the generation changed, or all images.
	Images  string    `json:"images,omitempty"`
	Started time.Time `json:"started"`
	// Ended is nil while the run is open.
	Ended *time.Time `json:"ended,omitempty"`
}

// Change is a change of a SidecarSet or of its run.
type Change struct {
	At time.Time `json:"at"`
	By string    `json:"who,omitempty"`
	// Action is the last write of spec by a field manager, or a pause, resume, approval, promotion,
	// abort or retry.
	Action string `json:"what"`
	Reason string `json:"why,omitempty"`
}

// NewHistory returns the history of a SidecarSet, the newest entries first. Changes contains the writes of
// the spec and the changes of the runs.
func NewHistory(in *Input, runs RunHistory) *History {
	known, pods := in.revisions(), map[string]int{}
	for _, pod := range in.Pods {
		if match.Active(pod) {
			pods[known.of(pod)]++
		}
	}
	h := &History{Name: in.Set.Name, Revisions: []RevisionRow{}, RunHistory: runs}
	for _, one := range slices.Backward(in.Revisions) {
		h.Revisions = append(h.Revisions, RevisionRow{
			Number: one.Revision, Name: one.Name, Current: one.Name == known.current, Images: recordedImages(one), Pods: pods[one.Name],
			CustomVersion: strings.Join(revision.CustomVersions(one), ","), Created: one.CreationTimestamp.Time,
			ChangeCause: one.Annotations[v1alpha1.ChangeCauseAnnotation],
		})
	}
	h.Changes = append(writes(in.Set), runs.Changes...)
	slices.SortFunc(h.Runs, func(a, b RunRow) int { return b.Started.Compare(a.Started) })
	slices.SortStableFunc(h.Changes, func(a, b Change) int { return b.At.Compare(a.At) })
	return h
}

// writes returns the last write of spec by each field manager in the managed fields.
func writes(set *v1alpha1.SidecarSet) []Change {
	var all []Change
	for _, entry := range set.ManagedFields {
		if entry.Time == nil || entry.FieldsV1 == nil || entry.Subresource != "" || !strings.Contains(entry.FieldsV1.GetRawString(), `"f:spec"`) {
			continue
		}
		all = append(all, Change{At: entry.Time.Time, By: entry.Manager, Action: "wrote spec", Reason: "by " + strings.ToLower(string(entry.Operation))})
	}
	return all
}

// Text returns a table of the revisions, a table of the runs and a table of the changes.
func (h *History) Text(s Style) string {
	rows := [][]string{{"REVISION", "NAME", "CURRENT", "VERSION", "PODS", "AGE", "IMAGES", "CHANGE-CAUSE"}}
	for i := range h.Revisions {
		r := &h.Revisions[i]
		current := ""
		if r.Current {
			current = "yes"
		}
		rows = append(rows, []string{fmt.Sprint(r.Number), r.Name, current, r.CustomVersion, fmt.Sprint(r.Pods), age(s.Now, r.Created), joinImages(r.Images), strings.Join(strings.Fields(r.ChangeCause), " ")})
	}
	out := table(rows) + "\n" + h.runsText(s)
	if len(h.Changes) == 0 && h.ChangesUnknown == "" {
		return out
	}
	out += "\n"
	if h.ChangesUnknown != "" {
		out += "Pauses and resumes are incomplete: " + h.ChangesUnknown + "\n"
	}
	if len(h.Changes) == 0 {
		return out
	}
	rows = [][]string{{"AGE", "BY", "CHANGE", "REASON"}}
	for i := range h.Changes {
		c := &h.Changes[i]
		rows = append(rows, []string{age(s.Now, c.At), c.By, c.Action, c.Reason})
	}
	return out + table(rows)
}

func (h *History) runsText(s Style) string {
	if h.RunsUnknown != "" {
		return "Runs are not listed: " + h.RunsUnknown + "\n"
	}
	rows := [][]string{{"GENERATION", "RUN", "STATUS", "PHASE", "STARTED", "TOOK", "IMAGES"}}
	for i := range h.Runs {
		r := &h.Runs[i]
		end := s.Now
		if r.Ended != nil {
			end = *r.Ended
		}
		rows = append(rows, []string{fmt.Sprint(r.Generation), r.RunID, r.Status, string(r.Phase), age(s.Now, r.Started), age(end, r.Started), r.Images})
	}
	return table(rows)
}
