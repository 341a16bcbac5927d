package view

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/outrigger/outrigger/api/protocol"
	"github.com/outrigger/outrigger/api/v1alpha1"
)

// Text says how a model is written.
type Text struct {
	Now   time.Time
	Paint Paint
	// Wide lists every pod.
	Wide bool
}

const barWidth = 24

// Write writes a head of facts, and the tree: set, revisions, owners, pods.
func (r *Rollout) Write(out io.Writer, t Text) error {
	lines := append(r.head(t), "")
	lines = append(lines, r.tree(t)...)
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

func (r *Rollout) head(t Text) []string {
	var lines []string
	fact := func(name, text string) {
		if text != "" {
			lines = append(lines, fmt.Sprintf("%-10s %s", name+":", text))
		}
	}
	fact("Name", t.Paint.in(Strong, r.Name))
	fact("Status", r.statusLine(t))
	fact("Progress", r.bar(t))
	fact("Window", r.windowLine())
	fact("Images", joinImages(r.Images))
	if r.Hold != nil {
		fact("Held", t.Paint.in(Busy, heldBy(r.Hold)))
	}
	fact("Run", r.runLine(t))
	if waiting := r.waitingLine(t); waiting != "" {
		fact("Waiting", waiting)
	}
	for _, c := range r.Conditions {
		if c.needsAttention() {
			fact(c.Type, t.Paint.in(Bad, c.Reason)+": "+c.Message)
		}
	}
	return lines
}

func (c *Condition) needsAttention() bool {
	switch c.Type {
	case v1alpha1.ConditionDegraded:
		return c.Status == "True"
	case v1alpha1.ConditionInjected, v1alpha1.ConditionAvailable:
		return c.Status == "False"
	}
	return false
}

func (r *Rollout) statusLine(t Text) string {
	line := t.Paint.in(phaseTone(r.Phase), string(r.Phase))
	if len(r.Conditions) > 0 && r.Conditions[0].Type == v1alpha1.ConditionProgressing {
		c := r.Conditions[0]
		line += fmt.Sprintf(" (%s for %s)", c.Reason, age(t.Now, &c.Since))
	}
	if !r.Observed {
		line += fmt.Sprintf(", the operator has not seen generation %d yet", r.Generation)
	}
	return line
}

func phaseTone(phase protocol.Phase) Tone {
	switch phase {
	case protocol.PhaseComplete, protocol.PhasePartitionReached:
		return Good
	case protocol.PhasePaused, protocol.PhaseWaiting, protocol.PhaseProgressing:
		return Busy
	}
	return Plain
}

// bar shows updated and ready pods, updated ones, and the others.
func (r *Rollout) bar(t Text) string {
	c := r.Counts
	full, part := 0, 0
	if c.Matched > 0 {
		full = barWidth * c.UpdatedReady / c.Matched
		part = barWidth*c.Updated/c.Matched - full
	}
	return t.Paint.in(Good, strings.Repeat("█", full)) + t.Paint.in(Busy, strings.Repeat("▒", part)) +
		t.Paint.in(Faint, strings.Repeat("░", barWidth-full-part)) +
		fmt.Sprintf(" %d of %d updated, %d of them ready, %d to go", c.Updated, c.Matched, c.UpdatedReady, c.Remaining)
}

func (r *Rollout) windowLine() string {
	line := fmt.Sprintf("%d of %d unavailable (maxUnavailable %s)", r.Counts.Unavailable, r.Window.Slots, r.Window.MaxUnavailable)
	if r.Window.Partition != "" {
		line += ", partition " + r.Window.Partition
	}
	return line
}

func joinImages(images []Image) string {
	words := make([]string, len(images))
	for i, image := range images {
		words[i] = image.Container + "=" + image.Image
	}
	return strings.Join(words, ", ")
}

func heldBy(hold *protocol.Pause) string {
	text := "by somebody"
	if hold.By != "" {
		text = "by " + hold.By
	}
	if hold.Reason != "" {
		text += ": " + hold.Reason
	}
	return text
}

func (r *Rollout) runLine(t Text) string {
	switch {
	case r.RunUnknown != "":
		return t.Paint.in(Faint, r.RunUnknown)
	case r.Run == nil:
		none := "none is open"
		if r.RunWhere != "" {
			none += " in " + r.RunWhere
		}
		return t.Paint.in(Faint, none)
	}
	line := fmt.Sprintf("%s on generation %d for %s, %s, %s upgraded", r.Run.Phase, r.Run.Generation, age(t.Now, &r.Run.Since),
		countBatches(r.Run.Batches), plural(r.Run.Upgraded, "pod"))
	if r.Run.Failed > 0 {
		line += fmt.Sprintf(", %s refused", plural(r.Run.Failed, "write"))
	}
	return line
}

func countBatches(n int) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}

// waitingLine names the pod that has been on its way the longest.
func (r *Rollout) waitingLine(t Text) string {
	var longest *Pod
	for pod := range r.pods() {
		if pod.Since != nil && (longest == nil || pod.Since.Before(*longest.Since)) {
			longest = pod
		}
	}
	if longest == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s, written %s ago: %s", longest.Namespace, longest.Name, age(t.Now, longest.Since), longest.Why)
}

func (r *Rollout) pods() func(func(*Pod) bool) {
	return func(yield func(*Pod) bool) {
		for i := range r.Revisions {
			for j := range r.Revisions[i].Owners {
				pods := r.Revisions[i].Owners[j].Pods
				for k := range pods {
					if !yield(&pods[k]) {
						return
					}
				}
			}
		}
	}
}

// Line is how far the rollout is, in one line.
func (r *Rollout) Line() string {
	line := fmt.Sprintf("sidecarset/%s: %s, %s", r.Name, r.Phase, r.Message)
	if r.Hold != nil {
		line += "; held " + heldBy(r.Hold)
	}
	if !r.Observed {
		line += fmt.Sprintf("; generation %d is not observed yet", r.Generation)
	}
	return line
}
