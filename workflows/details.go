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
	waitSkipped   = "the pods of the batch had changed; looking again"
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
	paragraphs := []string{
		fmt.Sprintf("**%s**, generation %d: **%s**", r.input.SidecarSet.Name, r.input.Generation, r.phase),
		fmt.Sprintf("%d batches, %d pods upgraded, %d writes refused", r.progress.Batches, r.progress.Upgraded, r.progress.Failed),
	}
	if r.message != "" {
		paragraphs = slices.Insert(paragraphs, 1, singleLine(r.message))
	}
	if len(r.failures) > 0 {
		// The UI cuts off what ends with a list.
		paragraphs = append(paragraphs, "Refused:", r.listFailures(), "\u00a0")
	}
	return strings.Join(paragraphs, "\n\n")
}

func (r *run) listFailures() string {
	var lines []string
	for _, pod := range r.failures[:min(len(r.failures), maxShownFailures)] {
		lines = append(lines, fmt.Sprintf("- `%s`: %s", pod.PodReference, summary(pod.Reason)))
	}
	if more := len(r.failures) - maxShownFailures; more > 0 {
		lines = append(lines, fmt.Sprintf("- and %d more", more))
	}
	return strings.Join(lines, "\n")
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
