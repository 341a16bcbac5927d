package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/outrigger/outrigger/api/protocol"
)

const (
	// maxShownRejected limits the rejected pods that the details list.
	maxShownRejected = 10

	waitRejected = "no write of the batch was accepted; retrying later"
	waitSkipped  = "the pods of the batch had changed; retrying"
	waitFrozen   = "a RolloutFreeze stopped the batch"
	waitFailing  = "failed pods stopped the batch"
)

// waitOptions returns the options of a wait of at most timeout. The timer of the wait shows reason in the UI.
func waitOptions(timeout time.Duration, reason string) workflow.AwaitOptions {
	return workflow.AwaitOptions{Timeout: timeout, TimerOptions: workflow.TimerOptions{Summary: protocol.Summary(reason)}}
}

func singleLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// details returns the current state of the run in Markdown, for the UI.
func (r *run) details() string {
	paragraphs := []string{
		fmt.Sprintf("**%s**, generation %d: **%s**", r.input.SidecarSet.Name, r.input.Generation, r.phase),
		fmt.Sprintf("%d batches, %d upgrades started, %d writes rejected", r.progress.Batches, r.progress.Upgraded, r.progress.RejectedWrites),
	}
	if r.message != "" {
		paragraphs = slices.Insert(paragraphs, 1, singleLine(r.message))
	}
	if r.input.Images != "" {
		paragraphs = append(paragraphs, "Images: "+r.input.Images)
	}
	if stage := r.progress.Stage; stage != nil && stage.Quarantine == nil && !stage.Done {
		paragraphs = append(paragraphs, "RolloutPolicy "+stage.Policy+":", listSteps(stage, r.phase), "\u00a0")
	}
	if len(r.rejectedPods) > 0 {
		// The UI truncates a text that ends with a list.
		paragraphs = append(paragraphs, "Rejected:", r.listRejected(), "\u00a0")
	}
	return strings.Join(paragraphs, "\n\n")
}

// listSteps lists the steps that have ended, the current step, and the number of the later steps. The run stores
// only the current step, because a change of the policy applies to later steps.
func listSteps(s *protocol.Stage, phase protocol.Phase) string {
	var lines []string
	if s.Index > 0 {
		lines = append(lines, fmt.Sprintf("- %d ended ✔", s.Index))
	}
	current := "- **" + s.Title() + "**"
	if s.Step != nil {
		current += ", up to " + s.Step.UpTo.String()
		switch {
		case phase == protocol.PhaseBaking && s.Reached != nil:
			current += ", bakes until " + s.BakeEnd().UTC().Format(time.RFC3339)
		case phase == protocol.PhaseGateRunning && s.OpenGate() != nil:
			current += ", waits for gate " + s.OpenGate().Name
		case phase == protocol.PhaseAwaitingApproval:
			current += ", waits for approval"
		case s.Reached == nil && s.Step.Bake > 0:
			current += ", then bakes for " + s.Step.Bake.String()
		}
	}
	lines = append(lines, current)
	if left := s.Steps - s.Index - 1; left > 0 {
		lines = append(lines, fmt.Sprintf("- %d to come", left))
	}
	return strings.Join(lines, "\n")
}

func (r *run) listRejected() string {
	var lines []string
	for _, pod := range r.rejectedPods[:min(len(r.rejectedPods), maxShownRejected)] {
		lines = append(lines, fmt.Sprintf("- `%s`: %s", pod.PodReference, protocol.Summary(pod.Reason)))
	}
	if more := len(r.rejectedPods) - maxShownRejected; more > 0 {
		lines = append(lines, fmt.Sprintf("- and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// recordRejected returns the pods of known without written pods, and adds the pods of failed with the newest
// reasons, up to maxNamedRejected pods.
func recordRejected(known []protocol.RejectedPod, written []protocol.PodReference, failed []protocol.RejectedPod) []protocol.RejectedPod {
	for _, pod := range failed {
		written = append(written, pod.PodReference)
	}
	known = slices.DeleteFunc(known, func(pod protocol.RejectedPod) bool { return slices.Contains(written, pod.PodReference) })
	return append(known, failed[:min(len(failed), maxNamedRejected-len(known))]...)
}

func references(written []protocol.WrittenPod) []protocol.PodReference {
	var pods []protocol.PodReference
	for _, pod := range written {
		pods = append(pods, pod.PodReference)
	}
	return pods
}
