package view

import "fmt"

// PatchStrategy is the command that changes a field of spec.updateStrategy. value is JSON.
func PatchStrategy(set, field, value string) string {
	return fmt.Sprintf(`kubectl patch sidecarset %s --type=merge -p '{"spec":{"updateStrategy":{"%s":%s}}}'`, set, field, value)
}

// PausedBySpec returns the reason for a pause by the spec, with the command that resumes the
// rollout.
func PausedBySpec(set string) string {
	return "spec.updateStrategy.paused is true (" + PatchStrategy(set, "paused", "false") + ")"
}

// ResumeCommand resumes a run that is paused by signal.
func ResumeCommand(set string) string { return "kubectl sidecarset resume " + set }
