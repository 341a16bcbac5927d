package view

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Tone is what a word means to the reader.
type Tone int

// Tones of words.
const (
	Plain Tone = iota
	Good
	Busy
	Bad
	Faint
	Strong
)

// Paint colours a word. Nil leaves it plain.
type Paint func(tone Tone, word string) string

func (p Paint) in(tone Tone, word string) string {
	if p == nil || word == "" {
		return word
	}
	return p(tone, word)
}

// age is written as kubectl writes it; a dash without a time.
func age(now time.Time, then *time.Time) string {
	if then == nil || then.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(now.Sub(*then), 0))
}

// table writes rows in columns. The first is the heading.
func table(out io.Writer, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	for _, row := range rows {
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// orDash stands for a cell that is empty.
func orDash(cell string) string {
	if cell == "" {
		return "-"
	}
	return cell
}

// plural counts things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
