package simulate

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/rollout"
)

// Text returns the timeline as text for users.
func (r *Result) Text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "Simulation of RolloutPolicy %s for SidecarSet %s, from %s; nothing is written\n", r.Policy, r.SidecarSet, r.Begin.UTC().Format(time.RFC3339))
	fmt.Fprintf(&out, "%s, %d to upgrade, maxUnavailable %s (%s); a pod is ready %s after its upgrade\n",
		rollout.Count(r.Pods, "pod"), r.ToUpgrade, r.MaxUnavailable, rollout.Count(r.MaxUnavailablePods, "pod"), rollout.FormatDuration(r.ColdRestart.Duration))
	if r.Hypothetical {
		out.WriteString("No pod is to be upgraded now: the simulation upgrades all pods to a hypothetical new image\n")
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&out, "Note: %s\n", note)
	}
	out.WriteString("\n")
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for i := range r.Events {
		event := &r.Events[i]
		// The writer writes to memory, which cannot fail.
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", clock(event.After), event.Step, event.text())
	}
	_ = table.Flush()
	fmt.Fprintf(&out, "\nTotal: %s, %s in %s; unavailable at most: %s\n", rollout.FormatDuration(r.Took.Duration), rollout.Count(r.Upgraded, "pod"), rollout.Count(r.Batches, "batch"), r.Most.text())
	return out.String()
}

func (e *Event) text() string {
	if e.Upgraded == 0 {
		return e.Message
	}
	text := fmt.Sprintf("%s in %s", rollout.Count(e.Upgraded, "pod"), rollout.Count(e.Batches, "batch"))
	if e.LastAfter != nil {
		text += " until " + clock(*e.LastAfter)
	}
	return fmt.Sprintf("%s, %d unavailable at most", text, e.Unavailable)
}

func (m *Most) text() string {
	text := fmt.Sprintf("%s, %d of one owner", rollout.Count(m.Pods, "pod"), m.PerOwner)
	if m.Domains > 0 {
		text += fmt.Sprintf(", %d of one domain, in %s", m.PerDomain, rollout.Count(m.Domains, "domain"))
	}
	return text
}

func clock(after metav1.Duration) string { return "+" + rollout.FormatDuration(after.Duration) }

func assumed(after time.Duration) string {
	if after == 0 {
		return "at once"
	}
	return "after " + rollout.FormatDuration(after)
}

func isAre(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return rollout.Count(n, noun) + " are"
}
