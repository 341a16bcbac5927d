package protocol

import "strings"

// MaxSummary is the maximum length of a summary, in bytes. If a summary has more than 400 encoded bytes,
// Temporal rejects the start of the run, or the workflow task, that contains the summary.
const MaxSummary = 200

// Summary returns text as one line of at most MaxSummary bytes.
func Summary(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return Shortened(text, MaxSummary)
}

// Shortened returns text, cut to at most the given number of bytes. A cut text ends with an ellipsis.
func Shortened(text string, most int) string {
	const more = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(more)], "") + more
}
