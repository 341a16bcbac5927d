package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// maxSummary is in bytes. Temporal refuses a workflow task with a longer one than
	// 400, its encoding included.
	maxSummary = 200
	// maxShownFailures bounds the refused pods that the details name.
	maxShownFailures = 10

	waitRefused   = "no write of the batch was accepted; trying again later"
	waitMigration = "hot pods have not migrated yet"
)

// waitOptions has the UI show why the run waits.
func waitOptions(timeout time.Duration, reason string) workflow.AwaitOptions {
	return workflow.AwaitOptions{Timeout: timeout, TimerOptions: workflow.TimerOptions{Summary: summary(reason)}}
}

// summary makes one bounded line of a text.
func summary(text string) string {
	text = singleLine(text)
	if len(text) <= maxSummary {
		return text
	}
	cut := maxSummary - len("…")
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

func singleLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// details are what the UI shows of the run as it is, in Markdown.
func (r *run) details() string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**, generation %d: **%s**\n\n", r.input.SidecarSet.Name, r.input.Generation, r.phase)
	if r.message != "" {
		fmt.Fprintf(&b, "%s\n\n", singleLine(r.message))
	}
	fmt.Fprintf(&b, "%d batches, %d pods upgraded, %d writes refused", r.progress.Batches, r.progress.Upgraded, r.progress.Failed)
	r.describeFailures(&b)
	return b.String()
}

func (r *run) describeFailures(b *strings.Builder) {
	if len(r.failures) == 0 {
		return
	}
	b.WriteString("\n\nRefused:\n")
	for _, pod := range r.failures[:min(len(r.failures), maxShownFailures)] {
		fmt.Fprintf(b, "\n- `%s`: %s", pod.PodReference, summary(pod.Reason))
	}
	if more := len(r.failures) - maxShownFailures; more > 0 {
		fmt.Fprintf(b, "\n- and %d more", more)
	}
	// The UI cuts off what ends with a list.
	b.WriteString("\n\n\u00a0")
}

// noteFailures adds refused pods with their newest reasons, and removes those that were
// written since.
func noteFailures(known []protocol.FailedPod, written []protocol.PodReference, failed []protocol.FailedPod) []protocol.FailedPod {
	for _, pod := range failed {
		written = append(written, pod.PodReference)
	}
	known = slices.DeleteFunc(known, func(pod protocol.FailedPod) bool { return slices.Contains(written, pod.PodReference) })
	return append(known, failed[:min(len(failed), maxRefused-len(known))]...)
}

func references(written []protocol.WrittenPod) []protocol.PodReference {
	var pods []protocol.PodReference
	for _, pod := range written {
		pods = append(pods, pod.PodReference)
	}
	return pods
}
