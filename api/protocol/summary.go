package protocol

import "strings"

// MaxSummary is in bytes. Temporal rejects a summary of more than 400 encoded bytes, and with it
// the start of the run or the workflow task.
const MaxSummary = 200

// Summary turns a text into one line of at most MaxSummary bytes.
func Summary(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return Shortened(text, MaxSummary)
}

// Shortened returns a text with at most this number of bytes.
func Shortened(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
