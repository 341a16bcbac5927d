package protocol

import (
	"strings"
	"unicode/utf8"
)

// MaxSummary is in bytes. Temporal rejects a summary of more than 400 encoded bytes, and with it
// the start of the run or the workflow task.
const MaxSummary = 200

// Summary turns a text into one line of at most MaxSummary bytes.
func Summary(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return shortened(text, MaxSummary)
}

// shortened returns a text with at most this number of bytes.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	cut := most - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}
