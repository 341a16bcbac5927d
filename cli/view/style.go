package view

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Style is the format of the text of a model.
type Style struct {
	Now   time.Time
	Paint Paint
	// Wide selects the wide format, which lists every pod.
	Wide bool
}

// Tone is the meaning of a word. The colour of the word shows the tone.
type Tone int

// Tone has one of these values.
const (
	Plain Tone = iota
	Good
	Busy
	Bad
	Faint
	Strong
)

// Paint colours a word. If Paint is nil, the word has no colour.
type Paint func(tone Tone, word string) string

func (p Paint) in(tone Tone, word string) string {
	if p == nil || word == "" {
		return word
	}
	return p(tone, word)
}

// age returns the time since then in the format of kubectl, or a dash if then is zero. then is truncated to
// seconds, because the annotations of pods contain times in whole seconds. Without truncation, a pod could seem
// to be written before the run began.
func age(now, then time.Time) string {
	if then.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(now.Sub(then.Truncate(time.Second)), 0))
}

// table aligns rows in columns. The first row is the heading. table replaces empty cells with dashes.
func table(rows [][]string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 8, 3, ' ', 0)
	for _, row := range rows {
		for i := range row {
			row[i] = cmp.Or(OneLine(row[i]), "-")
		}
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // Writes to a Builder do not fail.
	return out.String()
}

// OneLine replaces the line breaks and tabs of a text, which would add rows and columns.
func OneLine(cell string) string {
	return strings.NewReplacer("\n", " ", "\t", " ", "\v", " ", "\f", " ").Replace(cell)
}

func text(lines []string) string { return strings.Join(lines, "\n") + "\n" }
