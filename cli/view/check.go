package view

import "strings"

// CheckState is the result of a check.
type CheckState string

// CheckState has one of these values.
const (
	CheckOK     CheckState = "ok"
	CheckFailed CheckState = "failed"
	// CheckUnknown is the result of a check that the permissions of the user or the configuration prevent.
	CheckUnknown CheckState = "unknown"
)

// Check is the result of the check of one part of an installation.
type Check struct {
	Part  string     `json:"part"`
	State CheckState `json:"state"`
	// Message contains the cause, and the next step if there is one.
	Message string `json:"message"`
}

// Checks contains the checks of an installation. Each check follows the checks on which the check depends.
type Checks []Check

// Failed returns the names of the parts that failed.
func (all Checks) Failed() []string {
	var parts []string
	for i := range all {
		if all[i].State == CheckFailed {
			parts = append(parts, all[i].Part)
		}
	}
	return parts
}

// Text returns a line for each check.
func (all Checks) Text(s Style) string {
	const state = "STATE"
	rows := [][]string{{"PART", state, "MESSAGE"}}
	for i := range all {
		rows = append(rows, []string{all[i].Part, string(all[i].State), strings.ReplaceAll(all[i].Message, "\n", " ")})
	}
	// The states are coloured after the columns are aligned, because table counts colour codes as part of the
	// width of a cell.
	lines := strings.SplitAfter(table(rows), "\n")
	from := strings.Index(lines[0], state)
	tones := map[CheckState]Tone{CheckOK: Good, CheckFailed: Bad, CheckUnknown: Busy}
	for i := range all {
		line, word := lines[i+1], string(all[i].State)
		lines[i+1] = line[:from] + s.Paint.in(tones[all[i].State], word) + line[from+len(word):]
	}
	return strings.Join(lines, "")
}
