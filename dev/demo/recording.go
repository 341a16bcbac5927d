package demo

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/utils/clock"
)

const (
	lineHeight, charWidth, margin = 18, 8.4, 14
	// longestPause is how long a picture stands still where nothing was printed.
	longestPause = 1500 * time.Millisecond
	// showEnd is how long it shows the end before it begins again.
	showEnd = 6 * time.Second
)

// Recording passes on what is printed, and remembers when.
type Recording struct {
	Out   io.Writer
	Clock clock.PassiveClock

	lines   []recordedLine
	partial bytes.Buffer
}

type recordedLine struct {
	text string
	at   time.Time
}

func (r *Recording) Write(p []byte) (int, error) {
	r.partial.Write(p)
	for {
		line, rest, whole := strings.Cut(r.partial.String(), "\n")
		if !whole {
			return cmp.Or(r.Out, io.Discard).Write(p)
		}
		r.lines = append(r.lines, recordedLine{line, r.Clock.Now()})
		r.partial.Reset()
		r.partial.WriteString(rest)
	}
}

// What differs from run to run, or belongs to this machine.
var (
	kubeconfig = regexp.MustCompile(`\s*kubeconfig: \S+`)
	address    = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
)

// SVG is a picture that plays the recording again and again: each line appears as it did,
// with shorter pauses.
func (r *Recording) SVG() string {
	widest, at := 0, time.Duration(0)
	var shown []time.Duration
	for i, line := range r.lines {
		if i > 0 {
			at += min(line.at.Sub(r.lines[i-1].at), longestPause)
		}
		shown = append(shown, at)
		widest = max(widest, utf8.RuneCountInString(tidy(line.text)))
	}
	whole := at + showEnd
	var out strings.Builder
	width, height := int(float64(widest)*charWidth)+2*margin, len(r.lines)*lineHeight+2*margin
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="monospace" font-size="14">`+"\n", width, height, width, height)
	fmt.Fprintf(&out, `<rect width="100%%" height="100%%" rx="8" fill="#1e2430"/>`+"\n")
	for i, line := range r.lines {
		text := tidy(line.text)
		if strings.TrimSpace(text) == "" {
			continue
		}
		begin := 100 * shown[i].Seconds() / whole.Seconds()
		fmt.Fprintf(&out, `<text x="%d" y="%d" fill="%s" xml:space="preserve">%s`, margin, margin+(i+1)*lineHeight-4, colour(text), html.EscapeString(text))
		fmt.Fprintf(&out, `<animate attributeName="opacity" dur="%.1fs" repeatCount="indefinite" calcMode="discrete" keyTimes="0;%.4f;1" values="0;1;1"/></text>`+"\n", whole.Seconds(), begin/100)
	}
	out.WriteString("</svg>\n")
	return out.String()
}

func tidy(line string) string {
	return address.ReplaceAllString(kubeconfig.ReplaceAllString(line, ""), "http://localhost")
}

func colour(line string) string {
	switch trimmed := strings.TrimSpace(line); {
	case strings.HasPrefix(trimmed, "$"):
		return "#8ec07c"
	case strings.ContainsAny(trimmed, "█▒"):
		return "#83a598"
	case trimmed[0] >= '1' && trimmed[0] <= '9':
		return "#fabd2f"
	}
	return "#d5d8de"
}
