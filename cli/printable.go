package cli

import (
	"io"
	"regexp"
	"strings"
	"unicode"
)

// colour matches the escape sequence of a colour.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// Printable returns text without control characters, except line breaks, tabs and colours. Users of the cluster write
// annotations and reasons, and control characters could change the terminal of the reader.
func Printable(text string) string {
	if !strings.ContainsFunc(text, forbidden) {
		return text
	}
	var out strings.Builder
	at := 0
	for _, found := range colour.FindAllStringIndex(text, -1) {
		out.WriteString(visible(text[at:found[0]]))
		out.WriteString(text[found[0]:found[1]])
		at = found[1]
	}
	out.WriteString(visible(text[at:]))
	return out.String()
}

// PrintableWriter returns a writer that writes Printable text to w. Each call of Write must contain only
// complete escape sequences of colours.
func PrintableWriter(w io.Writer) io.Writer { return printableWriter{w} }

type printableWriter struct{ to io.Writer }

func (w printableWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(w.to, Printable(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if forbidden(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

func forbidden(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
