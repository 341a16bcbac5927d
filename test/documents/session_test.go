package documents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSessionsAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.md")
	require.NoError(t, os.WriteFile(path, []byte("# A\n\n```console\n$ a \\\n  b\none\n$ c\n```\n\n```yaml\nk: v\n```\n"), 0o600))
	found, err := sessions(path)
	require.NoError(t, err)
	require.Len(t, found, 2)
	assert.Equal(t, []step{{4, "a \\\n  b", []string{"one"}}, {7, "c", nil}}, found[0].steps())
	assert.Equal(t, "yaml", found[1].language)
}

// loggedWatch is a line that kubectl wait logs.
const loggedWatch = `I1126 11:35:06.103259   24343 reflector.go:664] "Warning: watch ended with error" ` +
	`reflector="k8s.io/client-go@v0.36.3/tools/cache/reflector.go:343" type="*unstructured.Unstructured" ` +
	`err="an error on the server (\"unable to decode an event from the watch stream: context canceled\") ` +
	`has prevented the request from succeeding"` + "\n"

func TestDocumentedOutputMatches(t *testing.T) {
	for name, c := range map[string]struct {
		want []string
		got  string
		ok   bool
	}{
		"the same":          {[]string{"a", "b"}, "a\nb\n", true},
		"blanks":            {[]string{"NAME  AGE"}, "NAME     AGE\n", true},
		"a difference":      {[]string{"web-…  1/1  …s"}, "web-7f  1/1  12s\n", true},
		"another line":      {[]string{"a"}, "b\n", false},
		"a line too much":   {[]string{"a"}, "a\nb\n", false},
		"a line too few":    {[]string{"a", "b"}, "a\n", false},
		"left out":          {[]string{"a", "…", "z"}, "a\nb\nc\nz\n", true},
		"left out, no end":  {[]string{"a", "…"}, "a\nb\n", true},
		"left out, missing": {[]string{"a", "…", "z"}, "a\nb\n", false},
		"nothing":           {nil, "", true},
		"not silent":        {nil, "a\n", false},
		"a watch canceled":  {[]string{"met"}, loggedWatch + "met\n", true},
		"another log line":  {[]string{"met"}, strings.Replace(loggedWatch, "context canceled", "EOF", 1) + "met\n", false},
		"no pattern":        {[]string{"a.c"}, "abc\n", false},
	} {
		_, ok := missing(c.want, c.got)
		assert.Equal(t, c.ok, ok, name)
	}
}
