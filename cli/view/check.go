package view

// CheckState is the result of a check.
type CheckState string

// The results of a check.
const (
	CheckOK     CheckState = "ok"
	CheckFailed CheckState = "failed"
	// CheckUnknown is for a check that the rights of the user, or the configuration, do not allow.
	CheckUnknown CheckState = "unknown"
)

// Check is the check of one part of an installation.
type Check struct {
	Part  string     `json:"part"`
	State CheckState `json:"state"`
	// Message has the cause, and the next step if there is one.
	Message string `json:"message"`
}

// Checks are the checks of an installation. A check comes after the checks that it depends on.
type Checks []Check

// Failed lists the parts that failed.
func (all Checks) Failed() []string {
	var parts []string
	for i := range all {
		if all[i].State == CheckFailed {
			parts = append(parts, all[i].Part)
		}
	}
	return parts
}

// Text is a line for each check.
func (all Checks) Text(s Style) string {
	rows := [][]string{{"PART", "STATE", "MESSAGE"}}
	tones := map[CheckState]Tone{CheckOK: Good, CheckFailed: Bad, CheckUnknown: Busy}
	for i := range all {
		rows = append(rows, []string{all[i].Part, s.Paint.in(tones[all[i].State], string(all[i].State)), all[i].Message})
	}
	return table(rows)
}
