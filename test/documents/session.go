package documents

import (
	"os"
	"regexp"
	"strings"
)

// session is one fenced block of a document.
type session struct {
	// line is the line number of the opening fence. The first line is 1.
	line     int
	language string
	lines    []string
}

// step is a command of a console session and its output.
type step struct {
	line    int
	command string
	want    []string
}

// sessions returns the fenced blocks of a document.
func sessions(path string) ([]session, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return sessionsIn(string(text)), nil
}

func sessionsIn(text string) []session {
	var found []session
	open := false
	for i, line := range strings.Split(text, "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open:
			open = false
		case isFence:
			open = true
			found = append(found, session{line: i + 1, language: fence})
		case open:
			last := &found[len(found)-1]
			last.lines = append(last.lines, line)
		}
	}
	return found
}

// steps returns the commands of a console session. A command begins with a dollar sign and
// ends at the first line that does not end with a backslash.
func (s session) steps() []step {
	var found []step
	continued := false
	for i, line := range s.lines {
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case continued:
			found[len(found)-1].command += "\n" + line
		case isCommand:
			found = append(found, step{line: s.line + 1 + i, command: command})
		case len(found) > 0:
			found[len(found)-1].want = append(found[len(found)-1].want, line)
		}
		continued = (continued || isCommand) && strings.HasSuffix(line, `\`)
	}
	return found
}

// matches reports whether a printed line matches a line of the document. An ellipsis in the document matches
// any text, and a space matches any number of spaces.
func matches(want, got string) bool {
	parts := strings.Split(strings.Join(strings.Fields(want), " "), "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(strings.Join(strings.Fields(got), " "))
}

// canceledWatch matches a line that kubectl wait sometimes logs. When the condition is met, kubectl cancels the
// watch, even if the reflector is reading an event. The kubectl plugin never prints this line, because the
// plugin discards the logs of its libraries.
const canceledWatch = `(?m)^[IW]\d{4} \S+ +\d+ reflector\.go:\d+\] "Warning: watch ended with error" .*context canceled.*\n`

// missing returns the first line of the document that is missing in the output. The lines must be in the order
// of the document. If the document has a line with only an ellipsis, the output may have additional lines at
// this place.
func missing(want []string, got string) (line string, ok bool) {
	got = regexp.MustCompile(canceledWatch).ReplaceAllString(got, "")
	lines := strings.Split(strings.TrimRight(got, "\n"), "\n")
	if got == "" {
		lines = nil
	}
	skip := false
	for _, line := range want {
		if strings.TrimSpace(line) == "…" {
			skip = true
			continue
		}
		at := 0
		for skip && at < len(lines) && !matches(line, lines[at]) {
			at++
		}
		if at >= len(lines) || !matches(line, lines[at]) {
			return line, false
		}
		lines, skip = lines[at+1:], false
	}
	if len(lines) > 0 && !skip {
		return "(nothing more), not " + lines[0], false
	}
	return "", true
}
